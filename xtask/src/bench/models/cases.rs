//! Models of the zoo, their cases, and their preparation before anything is measured.

use crate::agree::python_with_onnxruntime;
use crate::conformance::python_with_onnx;
use crate::workspace::{artifacts, readable_path, root};
use crate::{Result, shell};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A model with weights, and how its inputs are made.
pub(crate) struct Case {
    /// `resnet50.b1`
    pub(crate) name: String,
    pub(crate) model: PathBuf,
    pub(crate) case: PathBuf,
}

/// A case whose model is made here.
struct Made {
    name: &'static str,
    /// Script in `tests/perf`, with its first argument.
    script: &'static str,
    argument: &'static str,
}

/// Cases whose models are made here; those of many small nodes fewest first.
const MADE: [Made; 13] = [
    Made { name: "nodes.25k", script: SMALL_NODES, argument: "25000" },
    Made { name: "nodes.100k", script: SMALL_NODES, argument: "100000" },
    Made { name: "loops.scalar", script: LOOPS, argument: "scalar" },
    Made { name: "loops.sequence", script: LOOPS, argument: "sequence" },
    Made { name: "loops.layer", script: LOOPS, argument: "layer" },
    Made { name: "light.bvlc_alexnet", script: LIGHT, argument: "bvlc_alexnet" },
    Made { name: "light.densenet121", script: LIGHT, argument: "densenet121" },
    Made { name: "light.inception_v1", script: LIGHT, argument: "inception_v1" },
    Made { name: "light.inception_v2", script: LIGHT, argument: "inception_v2" },
    Made { name: "light.shufflenet", script: LIGHT, argument: "shufflenet" },
    Made { name: "light.squeezenet", script: LIGHT, argument: "squeezenet" },
    Made { name: "light.vgg19", script: LIGHT, argument: "vgg19" },
    Made { name: "light.zfnet512", script: LIGHT, argument: "zfnet512" },
];

const SMALL_NODES: &str = "small_nodes.py";
const LOOPS: &str = "loops.py";
/// Networks that the onnx wheel has without weights.
const LIGHT: &str = "light_networks.py";

impl Case {
    pub(in crate::bench) fn digits() -> Case {
        Case {
            name: "digits".into(),
            model: root().join("examples/digits/digits.onnx"),
            case: root().join("tests/perf/digits.case"),
        }
    }

    /// Makes the models that are generated here and selected by name.
    pub(super) fn generate(names: &[String]) -> Result<Vec<Case>> {
        let wanted = |case: &str| names.is_empty() || names.iter().any(|name| is(case, name));
        let made = MADE.iter().filter(|made| wanted(made.name));
        made.map(|Made { name, script, argument }| {
            let directory = artifacts("bench/models");
            let case = Case {
                name: name.to_string(),
                model: directory.join(format!("{name}.onnx")),
                case: directory.join(format!("{name}.case")),
            };
            let is_light = *script == LIGHT;
            let script = root().join("tests/perf").join(script);
            let weights = root().join("tests/agree/light.py");
            let sources: &[&Path] = if is_light { &[&script, &weights] } else { &[&script] };
            if !is_newer(&case.model, sources) {
                let python =
                    if is_light { python_with_onnxruntime()? } else { python_with_onnx()? };
                let mut make = Command::new(python);
                make.arg(&script).arg(argument);
                shell::run(make.args([&case.model, &case.case]))?;
            }
            Ok(case)
        })
        .collect()
    }

    /// Whether a name of a case or model asks for it.
    pub(super) fn is(&self, name: &str) -> bool {
        is(&self.name, name)
    }

    /// Returns the number of nodes of a case of small nodes.
    pub(super) fn node_count(name: &str) -> Option<u32> {
        let mut nodes = MADE.iter().filter(|made| made.script == SMALL_NODES);
        nodes.find(|made| made.name == name)?.argument.parse().ok()
    }

    /// Formats the inputs as `NAME=FILE`, which both sides parse.
    pub(in crate::bench) fn make_inputs(&self) -> Result<Vec<String>> {
        let directory = artifacts("bench/inputs").join(&self.name);
        let script = root().join("tests/perf/case_inputs.py");
        let words = shell::output(
            Command::new(python_with_onnx()?).arg(script).arg(&self.case).arg(directory),
        )?;
        Ok(words.lines().map(str::to_string).collect())
    }

    /// Computes the outputs in double precision, once; `None` for a model whose accuracy they do
    /// not measure.
    pub(super) fn float64_outputs(&self) -> Result<Option<PathBuf>> {
        if MADE.iter().any(|made| made.name == self.name && made.script != LIGHT) {
            return Ok(None);
        }
        let outputs = artifacts("bench/float64").join(format!("{}.npz", self.name));
        let script = root().join("tests/perf/float64_outputs.py");
        let inputs = root().join("tests/perf/case_inputs.py");
        if is_newer(&outputs, &[&self.model, &self.case, &script, &inputs]) {
            return Ok(Some(outputs));
        }
        eprintln!("{}: running it in double precision", self.name);
        let answer = shell::output(Command::new(python_with_onnx()?).arg(script).args([
            &self.model,
            &self.case,
            &outputs,
        ]))?;
        let answer: Value = serde_json::from_str(&answer)?;
        Ok(answer["skipped"].is_null().then_some(outputs))
    }
}

/// Selects cases of a directory by the names of models and cases, or all of them, with their
/// models filled.
pub(crate) fn zoo_cases(zoo: &Path, names: &[String]) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for entry in fs::read_dir(zoo)? {
        let file = entry?.file_name().to_string_lossy().into_owned();
        if let Some(name) = file.strip_suffix(".case") {
            cases.push(name.to_string());
        }
    }
    cases.sort();
    for name in names {
        if !cases.iter().any(|case| is(case, name)) {
            return Err(
                format!("{name}: no such model or case; there are: {}", cases.join(", ")).into()
            );
        }
    }
    cases.retain(|case| names.is_empty() || names.iter().any(|name| is(case, name)));
    cases.into_iter().map(|name| fill(zoo, name)).collect()
}

fn is(case: &str, name: &str) -> bool {
    case == name || model_of(case) == name
}

/// Returns the part before the point: `resnet50` of `resnet50.b1`.
pub(super) fn model_of(case: &str) -> &str {
    case.split_once('.').map_or(case, |(model, _)| model)
}

fn fill(zoo: &Path, name: String) -> Result<Case> {
    let file = format!("{}.onnx", model_of(&name));
    let (skeleton, model) = (zoo.join(&file), artifacts("bench/models").join(&file));
    let script = root().join("tests/perf/zoo_weights.py");
    if !is_newer(&model, &[&skeleton, &script]) {
        eprintln!("Filling {} with weights", readable_path(&model));
        fs::create_dir_all(artifacts("bench/models"))?;
        shell::run(Command::new(python_with_onnx()?).arg(script).arg(skeleton).arg(&model))?;
    }
    Ok(Case { case: zoo.join(format!("{name}.case")), name, model })
}

fn is_newer(made: &Path, sources: &[&Path]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    time(made).is_some_and(|made| {
        sources.iter().all(|source| time(source).is_some_and(|source| source <= made))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_belongs_to_a_model() {
        assert_eq!(model_of("qwen2_0_5b.decode"), "qwen2_0_5b");
    }
}
