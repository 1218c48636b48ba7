//! Writes pictures in the DOT language of Graphviz, which computes their layout.

use super::drawing::{Drawing, VertexKind};

/// Formats the picture of a graph as DOT, the language of Graphviz.
pub(crate) fn write(drawing: &Drawing, title: &str) -> String {
    let mut text = format!("digraph \"{}\" {{\n", escape(title));
    text += "  rankdir=TB;\n";
    text += "  node [shape=box, style=\"rounded,filled\", fillcolor=white, fontname=monospace, fontsize=10];\n";
    text += "  edge [fontname=monospace, fontsize=9];\n";
    for (index, vertex) in drawing.vertices.iter().enumerate() {
        let label: Vec<String> = vertex.lines.iter().map(|line| escape(line)).collect();
        let look = match vertex.kind {
            VertexKind::Input | VertexKind::Output => ", shape=ellipse, fillcolor=\"#d9ead3\"",
            VertexKind::More => ", style=dashed",
            VertexKind::Node if vertex.repeats > 1 => ", fillcolor=\"#fff2cc\", peripheries=2",
            VertexKind::Node => "",
        };
        text += &format!("  v{index} [label=\"{}\"{look}];\n", label.join("\\n"));
    }
    for edge in &drawing.edges {
        let values: Vec<String> = edge.values.iter().map(|value| escape(value)).collect();
        let tooltip = values.join("\\n");
        text += &format!("  v{} -> v{} [tooltip=\"{tooltip}\"];\n", edge.from, edge.to);
    }
    text + "}\n"
}

/// Escapes text for a quoted string of DOT. Line breaks become spaces.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}
