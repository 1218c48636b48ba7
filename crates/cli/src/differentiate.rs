//! `sardonyx differentiate`: adds gradients of a value to the outputs of a model.

use sardonyx::train::{GradientOptions, GradientReport};

use crate::derived::{Command, format_side_effects};
use crate::failure::Failure;
use crate::human::format_count;
use crate::model_arg::ModelArg;
use crate::terminal::Terminal;
use crate::verdict::Verdict;
use crate::{invalid, saving};

/// Add gradients to a model, as outputs
///
/// The gradient of a value NAME is an output NAME_grad with the same type and shape. Gradients are
/// computed by operators of ai.onnx, so any runtime can run them. Existing nodes are unchanged. If
/// an operator has no gradient, such operators are listed and the exit code is 1.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    #[command(flatten)]
    saving: saving::Args,
    #[command(flatten)]
    invalid: invalid::Args,
    /// Value to differentiate; by default the only output. If it is not a scalar, the sum of its
    /// elements is differentiated
    #[arg(long, value_name = "VALUE", conflicts_with = "expand")]
    of: Option<String>,
    /// Values to differentiate with respect to: inputs and initializers by patterns such as
    /// '*.weight', other values by name; by default all floating-point inputs and initializers. May
    /// be repeated
    #[arg(long, value_name = "PATTERN", conflicts_with = "expand")]
    by: Vec<String>,
    /// Add one Gradient node (ai.onnx.preview.training) instead of the nodes that compute the
    /// gradients
    #[arg(long, conflicts_with = "expand")]
    gradient_node: bool,
    /// Add no outputs; replace the Gradient nodes of the model by nodes that compute the gradients
    #[arg(long)]
    expand: bool,
}

/// Name and version of the schema of `differentiate --json`. The version rises when the meaning of
/// a key changes, not when a key is added.
const SCHEMA: &str = "sardonyx.differentiate/1";

pub(crate) fn differentiate(args: &Args, terminal: &Terminal) -> Result<Verdict, Failure> {
    let model = args.model.open()?;
    let target = args.saving.target(&args.model, &model)?;
    let result = if args.expand {
        model.expand_gradients()
    } else {
        model.add_gradients(&args.to_options())
    };
    let command =
        Command { schema: SCHEMA, arg: &args.model, saving: &args.saving, invalid: &args.invalid };
    command.finish(&model, target, result, |report| as_text(report, args.expand), terminal)
}

impl Args {
    fn to_options(&self) -> GradientOptions {
        let mut options = GradientOptions::new().gradient_node(self.gradient_node);
        if let Some(of) = &self.of {
            options = options.differentiate(of);
        }
        if self.by.is_empty() { options } else { options.with_respect_to(&self.by) }
    }
}

/// Describes the added gradients, or with `expands` the replaced `Gradient` nodes.
fn as_text(report: &GradientReport, expands: bool) -> String {
    let mut text = if expands {
        let (replaced, nodes) =
            (format_count(report.replaced, "Gradient node"), format_count(report.nodes, "node"));
        format!("replaced {replaced} by {nodes}")
    } else {
        let gradients = format_count(report.gradients.len(), "gradient");
        let nodes = format_count(report.nodes, "node");
        format!("added {gradients} of '{}', computed by {nodes}", report.of)
    };
    text += &format_side_effects(report.opset.0, report.opset.1, &report.expansions);
    text
}
