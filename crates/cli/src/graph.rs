//! `sardonyx graph`: draws a model or a part of it.

mod dot;
mod drawing;
mod folds;
mod html;
mod layout;
mod svg;

use std::io::Write;
use std::path::{Path, PathBuf};

use sardonyx::Model;
use sardonyx::infer::InferOptions;
use sardonyx::text::PrintOptions;

use crate::failure::{Code, Failure};
use crate::files;
use crate::human::group_digits;
use crate::model_arg::ModelArg;
use crate::saving::{self, Target};
use crate::terminal::Terminal;
use drawing::{Drawing, Graph};
use folds::Folds;

/// Draw the main graph of a model, or a part of it, as SVG, HTML or DOT
///
/// Constants are listed in the nodes that read them. HTML is the same picture as SVG, in a page
/// that can be moved and zoomed and shows the details of a node. DOT is for Graphviz, and for
/// stdout.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// File to write: .svg, .html, .dot or .gv, or - for DOT on stdout
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Draw only the neighborhood of a node, given by its name, its position in the main graph, or
    /// the name of one of its outputs
    #[arg(long, value_name = "NODE")]
    around: Option<String>,
    /// With --around: how many edges before and after the node
    #[arg(long, value_name = "N", default_value_t = 3, requires = "around")]
    depth: usize,
    /// Whether to draw parts of the graph that repeat, such as the layers of a transformer, only
    /// once
    #[arg(long, value_enum, default_value_t = Fold::Auto, value_name = "WHEN", conflicts_with = "around")]
    fold: Fold,
}

/// Value of the option `--fold`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Fold {
    /// If the graph has more than 100 nodes
    Auto,
    Always,
    Never,
}

/// Number of nodes above which `--fold auto` draws repeated parts of the graph only once.
const FOLDED_ABOVE: usize = 100;
/// Maximum number of boxes in a picture. A larger picture is not readable.
const MOST_VERTICES: usize = 400;
/// Maximum size in bytes of a tensor whose elements are part of the text of a node.
const SHOWN_BYTES: u64 = 64;

/// File format of the picture of a graph.
enum Form {
    Svg,
    Html,
    Dot,
}

impl Form {
    /// Returns the format that the file extension of `path` selects; DOT for stdout. Fails for
    /// other extensions.
    fn from_target(target: &Target, path: &Path) -> Result<Form, Failure> {
        if matches!(target, Target::Stdout) {
            return Ok(Form::Dot);
        }
        let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("");
        match suffix.to_ascii_lowercase().as_str() {
            "svg" => Ok(Form::Svg),
            "html" | "htm" => Ok(Form::Html),
            "dot" | "gv" => Ok(Form::Dot),
            _ => {
                let message = format!(
                    "the file extension of '{}' selects no format of a picture",
                    path.display()
                );
                Err(Failure::new(message)
                    .help("use .svg, .html or .dot; Graphviz converts .dot to other formats"))
            }
        }
    }
}

pub(crate) fn graph(args: &Args, terminal: &Terminal) -> Result<(), Failure> {
    let target = saving::parse_target(&args.output)?;
    let form = Form::from_target(&target, &args.output)?;
    let model = args.model.open()?;
    let types = model.infer(&InferOptions::new().without_reasons(true));
    let graph = Graph::new(model.nodes(Some(&types)));
    let drawing = args.draw(&graph)?;
    if let Some(boxes) = drawing.count_shared_boxes() {
        terminal.remark(&format!(
            "nodes share boxes: {} boxes stand for several nodes, so that the picture has at most {MOST_VERTICES}; --around NODE draws a part of the graph",
            group_digits(boxes as u64)
        ));
    }
    let title = match &*model.graph_name() {
        "" => args.model.name(),
        name => format!("{name}, {}", args.model.name()),
    };
    let text = match form {
        Form::Svg => svg::write(&drawing, &title),
        Form::Html => html::write(&add_texts(drawing, &model)?, &title)?,
        Form::Dot => dot::write(&drawing, &title),
    };
    match target {
        Target::Stdout => terminal.print(&text),
        Target::File(path) => {
            saving::protect_inputs(&args.model, &model, &[]).check(&path)?;
            files::write(&path, |file| Ok(file.write_all(text.as_bytes())?))?;
            terminal.remark(&format!("wrote {}", path.display()));
            Ok(())
        }
    }
}

impl Args {
    /// Draws the main graph, or with `--around` the neighborhood of a node. Fails if the picture
    /// has more than [`MOST_VERTICES`] boxes.
    fn draw(&self, graph: &Graph) -> Result<Drawing, Failure> {
        let all = graph.list_drawn_nodes();
        if all.is_empty() {
            return Err(Failure::new("the main graph has no nodes to draw"));
        }
        let drawing = match &self.around {
            Some(centre) => {
                let part = graph.find_neighborhood(find_node(graph, centre)?, self.depth);
                let is_part = part.len() < all.len();
                graph.draw(&part, &Folds::new(graph.nodes.len()), is_part)
            }
            None => {
                let is_folded = match self.fold {
                    Fold::Auto => all.len() > FOLDED_ABOVE,
                    Fold::Always => true,
                    Fold::Never => false,
                };
                let folds = if is_folded {
                    Folds::from_nodes(&graph.nodes, &all)
                } else {
                    Folds::new(graph.nodes.len())
                };
                let drawing = graph.draw(&all, &folds, false);
                let is_fixed = matches!(self.fold, Fold::Never);
                if is_fixed || drawing.is_within_limit() {
                    drawing
                } else {
                    shrink_drawing(graph, &all, &folds)
                }
            }
        };
        if drawing.is_within_limit() {
            return Ok(drawing);
        }
        let boxes = group_digits(drawing.vertices.len() as u64);
        let message = format!("the drawing has {boxes} boxes; the maximum is {MOST_VERTICES}");
        Err(Failure::new(message).help(match &self.around {
            Some(_) => "lower --depth",
            None => "draw a part of the graph with --around NODE --depth N, or remove --fold",
        }))
    }
}

/// Maximum number of scopes in a node name, as in `encoder/layer.0/Add`, by which nodes share
/// boxes.
const DEEPEST_SCOPE: usize = 12;

impl Drawing {
    /// Returns the number of boxes that stand for several consecutive nodes; `None` if there are
    /// none.
    fn count_shared_boxes(&self) -> Option<usize> {
        let count = self.vertices.iter().filter(|vertex| vertex.is_shared).count();
        (count > 0).then_some(count)
    }

    /// Whether the picture has at most [`MOST_VERTICES`] boxes.
    fn is_within_limit(&self) -> bool {
        self.vertices.len() <= MOST_VERTICES
    }
}

/// Draws the nodes `listed` in at most [`MOST_VERTICES`] boxes. Consecutive nodes share boxes by
/// the deepest scopes in their names that suffice, or if no scopes do, by their order.
fn shrink_drawing(graph: &Graph, listed: &[usize], folds: &Folds) -> Drawing {
    let joined = folds.join_ends();
    for folds in [folds, &joined] {
        for level in (1..=DEEPEST_SCOPE).rev() {
            let Some(boxed) = folds.group_by_scopes(&graph.nodes, listed, level) else { break };
            let drawing = graph.draw(listed, &boxed, false);
            if drawing.is_within_limit() {
                return drawing;
            }
        }
    }
    let drawing = graph.draw(listed, &folds.group_by_count(listed, MOST_VERTICES / 2), false);
    if drawing.is_within_limit() {
        return drawing;
    }
    // A box has at most one box of inputs and one of outputs.
    graph.draw(listed, &joined.group_by_count(listed, MOST_VERTICES / 3), false)
}

/// Finds the node with the name, the output or the index `wanted`. Fails if there is none.
fn find_node(graph: &Graph, wanted: &str) -> Result<usize, Failure> {
    let nodes = &graph.nodes;
    let found = nodes
        .iter()
        .position(|node| node.name == wanted && !wanted.is_empty())
        .or_else(|| {
            nodes
                .iter()
                .position(|node| node.outputs.iter().flatten().any(|value| value.name == wanted))
        })
        .or_else(|| wanted.parse().ok().filter(|index| *index < nodes.len()));
    found.ok_or_else(|| {
        let message = format!("the main graph has no node or value '{wanted}'");
        let values = nodes.iter().flat_map(|node| node.outputs.iter().flatten());
        let names = nodes.iter().map(|node| node.name.as_str());
        let names = names.chain(values.map(|value| value.name.as_str()));
        let failure = Failure::new(message);
        match sardonyx::tool::suggest::closest(wanted, names) {
            Some(near) => failure.help(format!("did you mean '{near}'?")),
            None => failure.help("`sardonyx info --nodes` lists the nodes with their positions"),
        }
    })
}

/// Adds the ONNX text of each node to the details of its vertex.
fn add_texts(mut drawing: Drawing, model: &Model) -> Result<Drawing, Failure> {
    let options = PrintOptions::new().inline_bytes(SHOWN_BYTES).without_values();
    for vertex in &mut drawing.vertices {
        let Some(node) = vertex.node.filter(|_| !vertex.is_shared) else { continue };
        let (text, _) = options.print_range(model, node..node + 1).map_err(|error| {
            Failure::new(format!("node {node} of the main graph cannot be printed: {error}"))
                .code(Code::Internal)
        })?;
        let text = String::from_utf8_lossy(&text).trim_end().to_string();
        vertex.details.push(("text".to_string(), text));
    }
    Ok(drawing)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws the model that a text of nodes describes. Returns the titles of the vertices, and the
    /// edges.
    fn draw_text(
        nodes: &str,
        draw: impl Fn(&Graph) -> Drawing,
    ) -> (Vec<String>, Vec<(usize, usize)>) {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\": 21]>
             g (float[2] x, bool c) => (float[2] y) <float[2] w = {{1, 2}}> {{ {nodes} }}"
        );
        let model = Model::from_text(&text).unwrap();
        let drawing = draw(&Graph::new(model.nodes(None)));
        let titles = drawing.vertices.iter().map(|vertex| vertex.lines[0].clone()).collect();
        (titles, drawing.edges.iter().map(|edge| (edge.from, edge.to)).collect())
    }

    fn draw_all(graph: &Graph) -> Drawing {
        graph.draw(&graph.list_drawn_nodes(), &Folds::new(graph.nodes.len()), false)
    }

    #[test]
    fn constants_stand_in_the_nodes_that_read_them() {
        let nodes = "k = Constant <value_float = 1.0> () a = Mul (x, w) b = Add (a, k) y = Neg (b)";
        let (titles, edges) = draw_text(nodes, draw_all);
        assert_eq!(titles, ["Mul", "Add", "Neg", "x", "y"]);
        assert_eq!(edges, [(0, 1), (1, 2), (2, 4), (3, 0)]);
    }

    #[test]
    fn values_that_inner_graphs_read_lead_to_their_node() {
        let nodes = "a = Neg (x) y = If (c) <
            then_branch = t () => (p) { p = Exp (a) }, else_branch = e () => (q) { q = Abs (x) }>";
        let (titles, edges) = draw_text(nodes, draw_all);
        assert_eq!(titles, ["Neg", "If", "x", "c", "y"]);
        assert_eq!(edges, [(0, 1), (1, 4), (2, 0), (2, 1), (3, 1)]);
    }

    #[test]
    fn a_part_marks_where_the_graph_continues() {
        let nodes = "a = Neg (x) b = Exp (a) d = Abs (b) e = Relu (d) y = Add (e, b)";
        let (titles, edges) = draw_text(nodes, |graph| {
            let part = graph.find_neighborhood(find_node(graph, "d").unwrap(), 1);
            assert_eq!(part, [1, 2, 3]);
            graph.draw(&part, &Folds::new(graph.nodes.len()), true)
        });
        assert_eq!(titles, ["Exp", "Abs", "Relu", "… a", "… 1 reader", "… 1 reader"]);
        assert_eq!(edges, [(0, 1), (0, 4), (1, 2), (2, 5), (3, 0)]);
    }
}
