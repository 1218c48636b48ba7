//! A picture as a page that can be moved, zoomed and asked about nodes. It loads nothing.

use super::drawing::Drawing;
use super::svg;
use crate::failure::{Code, Failure};

/// The page, with places for what differs.
const PAGE: &str = include_str!("page.html");

/// The text of a picture.
pub(crate) fn write(drawing: &Drawing, title: &str) -> Result<String, Failure> {
    let details: Vec<_> = drawing.vertices.iter().map(|vertex| &vertex.details).collect();
    let details = serde_json::to_string(&details)
        .map_err(|error| Failure::new(error.to_string()).code(Code::Internal))?;
    // Nothing in it may end the element that it stands in.
    let details = details.replace('<', "\\u003c").replace('>', "\\u003e");
    let contents = [
        ("@TITLE@", svg::escaped(title)),
        ("@SVG@", svg::write(drawing, title)),
        ("@DETAILS@", details),
    ];
    // One after the other from the front: what is put in may hold the name of a place.
    let (mut page, mut rest) = (String::new(), PAGE);
    for (place, content) in contents {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page += before;
        page += &content;
        rest = after;
    }
    Ok(page + rest)
}
