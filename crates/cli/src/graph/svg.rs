//! Writes pictures of graphs as SVG.

use super::drawing::{Drawing, Vertex, VertexKind};
use super::layout::{Layout, Point, Size, compute_layout};
use crate::human;

/// Width of a character of the monospaced font, in pixels.
const COLUMN: f64 = 6.65;
/// Height of a line of text, in pixels.
const LINE: f64 = 15.0;
/// Distance between the text of a vertex and its border, in pixels.
const PADDING: f64 = 8.0;
/// Width of the empty border around the picture, in pixels.
const MARGIN: f64 = 16.0;

/// CSS rules of the picture.
const STYLE: &str = "text{font:11px monospace;fill:#1a1a1a}\
.title{font-weight:bold}\
rect{fill:#f4f7fb;stroke:#5b7083;}\
.input rect,.output rect{fill:#d9ead3;stroke:#4f7a43;}\
.more rect{fill:none;stroke-dasharray:4 3}\
.repeated rect{fill:#fff2cc;stroke:#8a6d1a}\
path{fill:none;stroke:#7a8794;stroke-width:1.2}\
marker path{fill:#7a8794;stroke:none}";

/// Formats the picture of a graph as SVG.
pub(crate) fn write(drawing: &Drawing, title: &str) -> String {
    let sizes: Vec<Size> = drawing.vertices.iter().map(measure_vertex).collect();
    let edges: Vec<(usize, usize)> =
        drawing.edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let Layout { centres, routes, size } = compute_layout(&sizes, &edges);
    let (width, height) = (size.width + 2.0 * MARGIN, size.height + 2.0 * MARGIN);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n\
         <defs><marker id=\"arrow\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L10 5L0 10z\"/></marker></defs>\n\
         <g transform=\"translate({MARGIN} {MARGIN})\">\n",
        escape(title)
    );
    for (edge, route) in drawing.edges.iter().zip(&routes) {
        let values: Vec<String> = edge.values.iter().map(|value| escape(value)).collect();
        text += &format!(
            "<path d=\"{}\" marker-end=\"url(#arrow)\"><title>{}</title></path>\n",
            format_curve(route),
            values.join("\n")
        );
    }
    for (index, vertex) in drawing.vertices.iter().enumerate() {
        text += &draw_vertex(index, vertex, centres[index], sizes[index]);
    }
    text + "</g>\n</svg>\n"
}

/// Returns the size of a vertex in pixels: the size of its text, with padding.
fn measure_vertex(vertex: &Vertex) -> Size {
    let columns = vertex.lines.iter().map(|line| human::measure_width(line)).max().unwrap_or(0);
    let width = columns.max(6) as f64 * COLUMN + 2.0 * PADDING;
    Size { width, height: vertex.lines.len() as f64 * LINE + 2.0 * PADDING }
}

/// Draws the box of a vertex with its lines of text, as an SVG group.
fn draw_vertex(index: usize, vertex: &Vertex, centre: Point, size: Size) -> String {
    let class = match vertex.kind {
        VertexKind::Input => "input",
        VertexKind::Output => "output",
        VertexKind::More => "more",
        VertexKind::Node if vertex.repeats > 1 => "node repeated",
        VertexKind::Node => "node",
    };
    let is_round = matches!(vertex.kind, VertexKind::Input | VertexKind::Output);
    let corner = if is_round { 14 } else { 5 };
    let (left, top) = (centre.x - size.width / 2.0, centre.y - size.height / 2.0);
    let mut text = format!(
        "<g class=\"{class}\" data-vertex=\"{index}\"><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"{corner}\"/>",
        size.width, size.height
    );
    for (at, line) in vertex.lines.iter().enumerate() {
        let y = top + PADDING + LINE * (at as f64 + 0.75);
        let class = if at == 0 { " class=\"title\"" } else { "" };
        text += &format!(
            "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\"{class}>{}</text>",
            centre.x,
            escape(line)
        );
    }
    text + "</g>\n"
}

/// Formats a curve through points as the path of an SVG element. The curve is vertical at each
/// point.
fn format_curve(route: &[Point]) -> String {
    let mut text = String::new();
    for (at, Point { x, y }) in route.iter().enumerate() {
        if at == 0 {
            text += &format!("M{x:.1} {y:.1}");
            continue;
        }
        let Point { x: from_x, y: from_y } = route[at - 1];
        if (from_x - x).abs() < 0.05 {
            // A segment without length would have no direction for the arrow head.
            if (from_y - y).abs() < 0.05 {
                continue;
            }
            text += &format!("V{y:.1}");
            continue;
        }
        let middle = f64::midpoint(from_y, *y);
        text += &format!("C{from_x:.1} {middle:.1} {x:.1} {middle:.1} {x:.1} {y:.1}");
    }
    text
}

/// Escapes text for XML content or attributes. Control characters that XML cannot represent become
/// U+FFFD.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
