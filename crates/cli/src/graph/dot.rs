//! A picture as a text in the DOT language of Graphviz, which computes the layout.

use super::drawing::{Drawing, Kind};

/// The text of a picture.
pub(crate) fn write(drawing: &Drawing, title: &str) -> String {
    let mut text = format!("digraph {} {{\n", quoted(title));
    text += "  rankdir=TB;\n";
    text += "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=monospace, fontsize=10];\n";
    text += "  edge [fontname=monospace, fontsize=9];\n";
    for (index, vertex) in drawing.vertices.iter().enumerate() {
        let label: Vec<String> = vertex.lines.iter().map(|line| escaped(line)).collect();
        let look = match vertex.kind {
            Kind::Input | Kind::Output => ", shape=ellipse, fillcolor=\"#d9ead3\"",
            Kind::More => ", style=dashed",
            Kind::Node if vertex.repeats > 1 => ", fillcolor=\"#fff2cc\", peripheries=2",
            Kind::Node => "",
        };
        text += &format!("  v{index} [label=\"{}\"{look}];\n", label.join("\\n"));
    }
    for edge in &drawing.edges {
        let values: Vec<String> = edge.values.iter().map(|value| escaped(value)).collect();
        let tooltip = values.join("\\n");
        text += &format!("  v{} -> v{} [tooltip=\"{tooltip}\"];\n", edge.from, edge.to);
    }
    text + "}\n"
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", escaped(text))
}

/// What stands between quotes.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}
