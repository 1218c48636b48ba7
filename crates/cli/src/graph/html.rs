//! Writes pictures as HTML pages that can be moved and zoomed and show details of nodes. A page
//! loads no other files.

use super::drawing::Drawing;
use super::svg;
use crate::failure::{Code, Failure};

/// Template of an HTML page with a picture. [`write`] replaces its placeholders.
const PAGE: &str = include_str!("page.html");

/// Formats the picture of a graph as an HTML page.
pub(crate) fn write(drawing: &Drawing, title: &str) -> Result<String, Failure> {
    let details: Vec<_> = drawing.vertices.iter().map(|vertex| &vertex.details).collect();
    let details = serde_json::to_string(&details)
        .map_err(|error| Failure::new(error.to_string()).code(Code::Internal))?;
    // Angle brackets are escaped so that no text can close the script element around it.
    let details = details.replace('<', "\\u003c").replace('>', "\\u003e");
    let contents = [
        ("@TITLE@", svg::escape(title)),
        ("@SVG@", svg::write(drawing, title)),
        ("@DETAILS@", details),
    ];
    // Replaces the placeholders from front to back, as inserted text may contain one.
    let (mut page, mut rest) = (String::new(), PAGE);
    for (place, content) in contents {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page += before;
        page += &content;
        rest = after;
    }
    Ok(page + rest)
}
