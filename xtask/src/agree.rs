//! `cargo xtask agree`: do whole models give what ONNX Runtime gives?
//!
//! Covers models whose stored outputs prove little: light networks of the onnx wheel with random
//! weights in the place of constants, and real models beside the checkout. Python makes models and
//! inputs and runs ONNX Runtime; our side is the `sardonyx` command, as anyone would use it.
//! `microsoft` is a table of single nodes of the operators that ONNX Runtime adds to the standard,
//! and `optimized` real models as it saves them, with these operators in them. `quantized` are
//! small models that its quantizer makes, saved in the same way. `training` are training steps and
//! gradients that were added to models, on ONNX Runtime and on the reference evaluator.
//!
//! `whisper` are models as exporters write them today, from an environment with these exporters; it
//! is made when one of these models is asked for.
//!
//! With `--shapes`: do all values in them have the shapes that we infer?

use crate::bench::{Case as ZooCase, zoo_cases};
use crate::workspace::{artifacts, build_release, readable_path, root};
use crate::{Result, python, shell};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Agree {
    /// Groups or models: light, light/vgg19, resnet50, magika, microsoft, training, ...; all by
    /// default.
    names: Vec<String>,
    /// Keep models, inputs and outputs in target/agree also where they agree.
    #[arg(long)]
    keep: bool,
    /// Compare the shapes that we infer with those of ONNX Runtime's arrays instead, for the models
    /// and cases beside the checkout; names are those of models.
    #[arg(long, conflicts_with_all = ["keep", "isa"])]
    shapes: bool,
    /// Let our side use no better instructions than these.
    #[arg(long, value_name = "NAME", value_parser = ["portable", "avx2", "avx512"])]
    isa: Option<String>,
}

/// Models, each a directory in target/agree.
const MODELS: &[&str] = &[
    "light/bvlc_alexnet",
    "light/densenet121",
    "light/inception_v1",
    "light/inception_v2",
    "light/resnet50",
    "light/shufflenet",
    "light/squeezenet",
    "light/vgg19",
    "light/zfnet512",
    "resnet50",
    "magika",
    "microsoft",
    "optimized/bert_base.b1",
    "optimized/gpt2.prefill",
    "optimized/gpt2.decode",
    "optimized/mobilenet_v3.b1",
    "optimized/qwen2_0_5b.decode",
    "optimized/resnet50.b1",
    "optimized/vit_b_16.b1",
    "quantized",
    "silero-vad",
    "training",
    "whisper/decoder",
    "whisper/merged",
    "whisper/dynamo",
    "whisper/loop",
];

/// Installs an interpreter with ONNX Runtime beside onnx.
pub(crate) fn python_with_onnxruntime() -> Result<PathBuf> {
    python::environment(&artifacts("agree"), &root().join("tests/agree/requirements.txt"))
}

pub(crate) fn run(task: &Agree) -> Result {
    let models = if task.shapes { Vec::new() } else { select_models(&task.names)? };
    let python = python_with_onnxruntime()?;
    let sides = Sides { python, ours: build_release("sardonyx", &[])?, isa: task.isa.clone() };
    if task.shapes {
        return shapes(&sides, &task.names);
    }

    println!("{:22} {:>7} {:>9}  verdict", "model", "outputs", "worst");
    let (mut agreeing, mut disagreeing) = (0_u64, 0_u64);
    for model in models {
        let directory = artifacts("agree").join(model);
        // Files of an earlier run must not count for this one.
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        fs::create_dir_all(&directory)?;
        if let "microsoft" | "quantized" | "training" = model {
            let (count, problems) = table(&sides, model, &directory)?;
            agreeing += count;
            disagreeing += problems;
            continue;
        }
        let cases = match make(&sides, model, &directory)? {
            Made::Cases(cases) => cases,
            Made::Skipped(reason) => {
                println!("{model:22} {:>7} {:>9}  skipped: {reason}", "", "");
                continue;
            }
        };
        let mut all_agree = true;
        for case in cases {
            let verdict = judge(&sides, &case).unwrap_or_else(|reason| Verdict {
                problems: vec![reason.to_string()],
                ..Verdict::default()
            });
            verdict.print(&case);
            if verdict.problems.is_empty() {
                agreeing += 1;
            } else {
                disagreeing += 1;
                all_agree = false;
            }
        }
        if all_agree && !task.keep {
            fs::remove_dir_all(&directory)?;
        } else {
            eprintln!("Kept in {}", readable_path(&directory));
        }
    }
    println!(
        "worst: the largest difference as a part of the output's largest magnitude; at most 1e-4 agrees"
    );
    if disagreeing == 0 {
        println!("{agreeing} cases agree with ONNX Runtime");
        Ok(())
    } else {
        Err(format!("{disagreeing} of {} cases disagree", agreeing + disagreeing).into())
    }
}

/// Selects models by name; `light` stands for all that start with `light/`.
fn select_models(names: &[String]) -> Result<Vec<&'static str>> {
    let asks_for = |name: &str, model: &str| {
        model.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for name in names {
        if !MODELS.iter().any(|model| asks_for(name, model)) {
            return Err(format!("{name}: no such model; there are: {}", MODELS.join(", ")).into());
        }
    }
    let wanted = |model: &&str| names.is_empty() || names.iter().any(|name| asks_for(name, model));
    Ok(MODELS.iter().copied().filter(wanted).collect())
}

/// The two programs that must agree.
struct Sides {
    /// Has onnx and ONNX Runtime.
    python: PathBuf,
    ours: PathBuf,
    isa: Option<String>,
}

impl Sides {
    fn script(&self, path: &str) -> Command {
        Sides::script_of(&self.python, path)
    }

    fn script_of(python: &Path, path: &str) -> Command {
        let mut command = Command::new(python);
        command.current_dir(root()).arg(root().join(path));
        command
    }
}

/// One run of a model on one set of inputs.
struct Case {
    name: String,
    model: PathBuf,
    /// `NAME=FILE` words, as our command takes them.
    inputs: Vec<String>,
    /// Outputs of ONNX Runtime.
    expected: PathBuf,
    /// Names of classes, where the output is an index of the best class.
    labels: Option<PathBuf>,
    /// A model that is a part of this one and has all of its weights. Ours packs no more for both.
    part: Option<PathBuf>,
    /// Origin of the input, for the report; may be empty.
    source: String,
}

enum Made {
    Cases(Vec<Case>),
    Skipped(String),
}

fn make(sides: &Sides, model: &str, directory: &Path) -> Result<Made> {
    eprintln!("Preparing {model}");
    match model.split_once('/') {
        Some(("light", name)) => light(sides, name, directory),
        Some(("whisper", name)) => whisper(name, directory),
        Some((_, name)) => make_optimized_case(sides, name, directory),
        None if model == "magika" => magika(sides, directory),
        None if model == "silero-vad" => silero(sides, directory),
        None => zoo(sides, model, directory),
    }
}

/// Runs a script that makes and compares cases. Gives how many agree, and how many do
/// not.
fn table(sides: &Sides, name: &str, directory: &Path) -> Result<(u64, u64)> {
    if name == "microsoft" {
        print!("{}", shell::output(&mut sides.script("tests/agree/microsoft_schemas.py"))?);
    }
    let mut table = sides.script(&format!("tests/agree/{name}.py"));
    table.arg(&sides.ours).arg(directory).arg("--count");
    if let Some(isa) = &sides.isa {
        table.env("SARDONYX_ISA", isa);
    }
    let answer: Value = serde_json::from_str(&shell::output(&mut table)?)?;
    let problems = texts(&answer["problems"]);
    let agreeing = answer["agreeing"].as_u64().unwrap_or_default();
    let worst = answer["worst"].as_f64().unwrap_or(f64::NAN);
    let word = if problems.is_empty() && agreeing > 0 { "ok" } else { "DISAGREE" };
    println!("{name:22} {agreeing:>7} {worst:>9.1e}  {word}");
    for problem in &problems {
        println!("    {problem}");
    }
    Ok((agreeing, problems.len().max(usize::from(agreeing == 0)) as u64))
}

fn light(sides: &Sides, name: &str, directory: &Path) -> Result<Made> {
    let mut command = sides.script("tests/agree/light.py");
    let words = shell::output(command.arg(name).arg(directory))?;
    Ok(Made::Cases(vec![Case {
        name: format!("light/{name}"),
        model: directory.join("model.onnx"),
        inputs: words.lines().map(str::to_string).collect(),
        expected: directory.join("expected.npz"),
        labels: None,
        part: None,
        source: String::new(),
    }]))
}

/// Fills a model of the checkout's neighbour as for `cargo xtask bench models`;
/// batch 1.
fn zoo(sides: &Sides, name: &str, directory: &Path) -> Result<Made> {
    match zoo_case(sides, name, "b1", directory)? {
        Some(case) => Ok(Made::Cases(vec![case])),
        None => Ok(Made::Skipped(NO_ZOO.into())),
    }
}

const NO_ZOO: &str = "no ../shared/zoo beside the checkout";

/// Makes a case `NAME.CASE` twice: plain, and as ONNX Runtime saves it. Both must give what
/// ONNX Runtime gives for the plain one.
fn make_optimized_case(sides: &Sides, name: &str, directory: &Path) -> Result<Made> {
    let (model, case) = name.split_once('.').ok_or("a model is named with its case")?;
    let Some(plain) = zoo_case(sides, model, case, directory)? else {
        return Ok(Made::Skipped(NO_ZOO.into()));
    };
    let saved = directory.join("optimized.onnx");
    let mut save = sides.script("tests/agree/optimized.py");
    let added = shell::output(save.arg(&plain.model).arg(&saved))?;
    let optimized = Case {
        name: format!("optimized/{name}"),
        model: saved,
        inputs: plain.inputs.clone(),
        expected: plain.expected.clone(),
        labels: None,
        part: None,
        source: added.trim().to_string(),
    };
    Ok(Made::Cases(vec![Case { name: name.to_string(), ..plain }, optimized]))
}

/// Makes a case of a model of the zoo; `None` without the zoo.
fn zoo_case(sides: &Sides, name: &str, case: &str, directory: &Path) -> Result<Option<Case>> {
    let zoo = root().join("../shared/zoo");
    let skeleton = zoo.join(format!("{name}.onnx"));
    let case = zoo.join(format!("{name}.{case}.case"));
    if !skeleton.is_file() || !case.is_file() {
        return Ok(None);
    }
    let (model, expected) = (directory.join("model.onnx"), directory.join("expected.npz"));
    let mut fill = sides.script("tests/perf/zoo_weights.py");
    shell::run(fill.arg(skeleton).arg(&model))?;
    let mut make_inputs = sides.script("tests/perf/case_inputs.py");
    let words = shell::output(make_inputs.arg(case).arg(directory))?;
    let inputs: Vec<String> = words.lines().map(str::to_string).collect();
    let mut reference = sides.script("tests/agree/reference.py");
    shell::run(reference.arg(&model).arg(&expected).args(&inputs))?;
    Ok(Some(Case {
        name: name.to_string(),
        model,
        inputs,
        expected,
        labels: None,
        part: None,
        source: String::new(),
    }))
}

/// Compares the shapes that we infer for each model and each of its cases with those that the
/// arrays have.
fn shapes(sides: &Sides, names: &[String]) -> Result {
    let zoo = root().join("../shared/zoo");
    if !zoo.is_dir() {
        println!("skipped: no ../shared/zoo beside the checkout");
        return Ok(());
    }
    let cases = zoo_cases(&zoo, names)?;
    let directory = artifacts("agree/shapes");
    fs::create_dir_all(&directory)?;
    println!("{:28} {:>7} {:>6}  for", "case", "values", "open");
    let mut wrong = 0;
    for ZooCase { name, case, model } in &cases {
        let mut compare = sides.script("tests/agree/shapes.py");
        compare.arg(&sides.ours).arg(model).arg(case).arg(&directory);
        let answer: Value = serde_json::from_str(&shell::output(&mut compare)?)?;
        let mut problems = texts(&answer["problems"]);
        if answer["values"] == 0 {
            problems.push("no value was compared".into());
        }
        println!("{name:28} {:>7} {:>6}  {}", answer["values"], answer["open"], answer["symbols"]);
        for problem in &problems {
            println!("  {problem}");
        }
        wrong += usize::from(!problems.is_empty());
    }
    fs::remove_dir_all(&directory)?;
    println!("open: sizes and ranks that only the data decide");
    match (wrong, cases.len()) {
        (_, 0) => Err("no case was compared".into()),
        (0, count) => {
            println!("{count} cases have the shapes that we infer");
            Ok(())
        }
        (wrong, count) => Err(format!("{wrong} of {count} cases have other shapes").into()),
    }
}

/// Makes cases of a file type detector from files of this machine.
fn magika(sides: &Sides, directory: &Path) -> Result<Made> {
    let models = root().join("../shared/models/magika");
    let (model, config) = (models.join("standard_v3_3.onnx"), models.join("config.min.json"));
    if !model.is_file() || !config.is_file() {
        return Ok(Made::Skipped("no ../shared/models/magika beside the checkout".into()));
    }
    let mut command = sides.script("tests/agree/magika.py");
    command.args([&model, &config]).arg(directory).arg(root());
    let labels = directory.join("labels.txt");
    Ok(Made::Cases(cases_of(&shell::output(&mut command)?, "magika", &model, Some(&labels))?))
}

/// Makes a case of a voice detector, which keeps a state from frame to frame.
fn silero(sides: &Sides, directory: &Path) -> Result<Made> {
    let model = root().join("../shared/models/silero-vad/silero_vad.onnx");
    if !model.is_file() {
        return Ok(Made::Skipped("no ../shared/models/silero-vad beside the checkout".into()));
    }
    let mut command = sides.script("tests/agree/silero.py");
    command.arg(&model).arg(directory);
    Ok(Made::Cases(cases_of(&shell::output(&mut command)?, "silero", &model, None)?))
}

/// Exports a small speech model in the way that `name` selects.
fn whisper(name: &str, directory: &Path) -> Result<Made> {
    let exporters = python::environment(
        &artifacts("agree/exporters"),
        &root().join("tests/agree/exporters.txt"),
    )?;
    let mut command = Sides::script_of(&exporters, "tests/agree/whisper.py");
    let lines = shell::output(command.arg(name).arg(directory))?;
    Ok(Made::Cases(cases_of(&lines, "", directory, None)?))
}

/// Reads the cases that a script prints, a line of JSON each.
fn cases_of(lines: &str, of: &str, model: &Path, labels: Option<&PathBuf>) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for line in lines.lines() {
        let case: Value = serde_json::from_str(line)?;
        let text = |key: &str| case[key].as_str().unwrap_or_default().to_string();
        cases.push(Case {
            name: format!("{of} {}", text("name")).trim_start().to_string(),
            model: case["model"].as_str().map_or_else(|| model.to_path_buf(), PathBuf::from),
            inputs: texts(&case["inputs"]),
            expected: text("expected").into(),
            labels: labels.cloned(),
            part: case["alone"].as_str().map(PathBuf::from),
            source: match texts(&case["files"]).as_slice() {
                [] => String::new(),
                [file] => readable_path(Path::new(file)),
                several => format!("{} files", several.len()),
            },
        });
    }
    Ok(cases)
}

fn texts(list: &Value) -> Vec<String> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_string).collect()
}

#[derive(Default)]
struct Verdict {
    outputs: u64,
    /// The largest difference of an output, as a part of its largest magnitude.
    worst: f64,
    /// The best class of each row by ONNX Runtime.
    labels: Vec<String>,
    /// Remark for the report.
    note: String,
    problems: Vec<String>,
}

/// Runs our side and compares.
fn judge(sides: &Sides, case: &Case) -> Result<Verdict> {
    let ours = case.expected.with_file_name("sardonyx.npz");
    // A side that writes nothing must not be judged by what it wrote last time.
    if ours.exists() {
        fs::remove_file(&ours)?;
    }
    let mut command = Command::new(&sides.ours);
    command.current_dir(root()).arg("run").arg(&case.model);
    command.args(&case.inputs).arg("--output").arg(&ours);
    command.arg("--quiet");
    if let Some(isa) = &sides.isa {
        command.env("SARDONYX_ISA", isa);
    }
    shell::output(&mut command)?;

    let mut compare = sides.script("tests/agree/compare.py");
    compare.arg(&case.expected).arg(&ours).args(&case.labels);
    let answer: Value = serde_json::from_str(&shell::output(&mut compare)?)?;
    let mut problems = texts(&answer["problems"]);
    let mut note = case.source.clone();
    if let Some(part) = &case.part {
        let (whole, part) = (packed_bytes(sides, &case.model)?, packed_bytes(sides, part)?);
        note = format!("packs {whole} bytes, the decoder alone {part}");
        if part == 0 || whole > part + part / 100 {
            problems.push("weights of both branches are not packed once".into());
        }
    }
    Ok(Verdict {
        note,
        outputs: answer["outputs"].as_u64().unwrap_or_default(),
        worst: answer["worst"].as_f64().unwrap_or(f64::NAN),
        labels: texts(&answer["labels"]),
        problems,
    })
}

/// Sums the bytes of constants that kernels pack.
fn packed_bytes(sides: &Sides, model: &Path) -> Result<u64> {
    let mut command = Command::new(&sides.ours);
    let said = shell::output(command.args(["explain", "--json", "--quiet"]).arg(model))?;
    let said: Value = serde_json::from_str(&said)?;
    let bytes = said["packed"]["bytes"].as_u64();
    Ok(bytes.ok_or("explain does not say what is packed")?)
}

impl Verdict {
    fn print(&self, case: &Case) {
        let word = if self.problems.is_empty() { "ok" } else { "DISAGREE" };
        let mut line = format!("{:22} {:>7} {:>9.1e}  {word}", case.name, self.outputs, self.worst);
        if let [label] = self.labels.as_slice() {
            line += &format!("  {label:16}");
        }
        if !self.note.is_empty() {
            line += &format!("  {}", self.note);
        }
        println!("{line}");
        for problem in &self.problems {
            println!("    {problem}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_stands_for_its_models() {
        let groups = [("light", 9), ("optimized", 7), ("whisper", 4)];
        for (name, count) in [("light/vgg19", 1), ("resnet50", 1)].into_iter().chain(groups) {
            let chosen = select_models(&[name.to_string()]).expect("known");
            assert_eq!(chosen.len(), count, "{name}");
        }
        assert_eq!(select_models(&[]).expect("all").len(), MODELS.len());
        assert!(select_models(&["ligh".to_string()]).is_err());
    }
}
