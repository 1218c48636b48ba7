//! Prints, edits and parses models repeatedly, and runs all other commands that change files in
//! between. A text or model must have the right content or be refused with a reason. It must never
//! differ silently.
//!
//! The environment variable `EDIT_SEQUENCES=1000` sets the number of random sequences.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support;
use crate::support::{Answer, Files, sardonyx};
use sardonyx::{Model, Session, Tensor};

/// Number of elements of each weight. Its bytes are too many to be printed into texts.
const LEN: usize = 40;

type Weights = BTreeMap<String, Vec<f32>>;

/// Creates weights of which no two are equal.
fn weights_from(seed: usize) -> Weights {
    let names = ["w0", "w1", "w2", "unused", "inner", "constant"];
    let mut weights = Weights::new();
    for (number, name) in names.iter().enumerate() {
        // Small enough that everything computed from them is exact.
        let values =
            (0..LEN).map(|i| ((seed * 31 + number * 11 + i * (number + 1)) % 128) as f32 / 8.0);
        weights.insert((*name).to_string(), values.collect());
    }
    weights
}

/// Writes the text, with all values, of a model that computes x + w0 - w1 * w2 + constant + inner.
fn text_of(weights: &Weights) -> Vec<u8> {
    let raw = |name: &str| {
        let bytes = weights[name].iter().flat_map(|value| value.to_le_bytes());
        let digits: String = bytes.map(|byte| format!("{byte:02x}")).collect();
        format!("raw x\"{digits}\"")
    };
    let mut text = String::from("<notation: \"full\", ir_version: 10, opset_import: [\"\": 21]>\n");
    writeln!(text, "g (float[{LEN}] x) => (float[{LEN}] y) <").unwrap();
    for name in ["w0", "w1", "w2"] {
        writeln!(text, "  float[{LEN}] {name} = {},", raw(name)).unwrap();
    }
    writeln!(text, "  float[{LEN}] unused = {}\n> {{", raw("unused")).unwrap();
    writeln!(text, "  [sum] s = Add(x, w0)\n  [product] p = Mul(w1, w2)\n  d = Sub(s, p)").unwrap();
    let (constant, inner) = (raw("constant"), raw("inner"));
    writeln!(text, "  constant = Constant<value: tensor = float[{LEN}] = {constant}>()").unwrap();
    writeln!(
        text,
        "  k = Constant<value: tensor = float[{LEN}] inner = {inner}>()\n  e = Add(d, constant)\n  y = Add(e, k)\n}}"
    )
    .unwrap();
    text.into_bytes()
}

/// Computes the output of the model for an input of ones.
fn output_of(weights: &Weights) -> Vec<f32> {
    let at = |name: &str, i: usize| weights[name][i];
    let elements = (0..LEN).map(|i| {
        let product = at("w1", i) * at("w2", i);
        (1.0 + at("w0", i)) - product + at("constant", i) + at("inner", i)
    });
    elements.collect()
}

fn numbers(bytes: &[u8]) -> Vec<f32> {
    let parts = bytes.chunks_exact(4);
    parts.map(|part| f32::from_le_bytes(part.try_into().unwrap())).collect()
}

/// Reads the weights of a file by name, and runs its model. Returns the reason if it is refused.
fn read(path: &str) -> Result<(Weights, Vec<f32>), String> {
    let failed = |error: sardonyx::Error| error.to_string();
    let model = Model::open(path).map_err(failed)?;
    let mut weights = Weights::new();
    for tensor in model.tensors() {
        let value = model.value_of(&tensor).map_err(failed)?;
        let name = match tensor.name.as_str() {
            "" => "constant",
            name => name,
        };
        weights.insert(name.to_string(), numbers(value.buffer().unwrap().as_slice()));
    }
    let session = Session::new(&model).map_err(failed)?;
    let x = Tensor::from_vec([LEN], vec![1.0f32; LEN]).unwrap();
    let outputs = session.run([("x", x)], &Default::default()).map_err(failed)?;
    let y = outputs.iter().next().unwrap().1.clone();
    let y = y.into_tensor().unwrap();
    Ok((weights, numbers(y.buffer().unwrap().as_slice())))
}

/// Creates a directory with a model `m.onnx` that `parse` wrote.
fn directory(seed: usize) -> (Files, Weights) {
    let weights = weights_from(seed);
    let files = Files::new(&[("start.onnxtxt", text_of(&weights))]);
    run(&files, "parse start.onnxtxt -o m.onnx").good();
    (files, weights)
}

fn run(files: &Files, line: &str) -> Answer {
    let args: Vec<String> = line.split(' ').map(|word| argument(files, word)).collect();
    sardonyx(&args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Converts a word of a command line to an argument: file names become paths in the directory.
fn argument(files: &Files, word: &str) -> String {
    if word.contains(".onnx") { files.path(word) } else { word.to_string() }
}

fn assert_right(files: &Files, name: &str, weights: &Weights) {
    let (found, output) = read(&files.path(name)).unwrap();
    assert!(found == *weights, "{name}: other weights");
    assert_eq!(output, output_of(weights), "{name}");
}

#[test]
fn print_edit_parse_edit_parse() {
    let (files, weights) = directory(1);
    run(&files, "print m.onnx -o m.onnxtxt").good();
    let text = String::from_utf8(files.read("m.onnxtxt")).unwrap();
    assert_eq!(text.matches("\"location\": \"m.onnx\"").count(), 6, "{text}");
    // The digest of the file is written once.
    assert!(text.contains("files: [\"m.onnx\": \""), "{text}");
    assert!(text.contains("\"tensor\": \"k>value\""), "{text}");
    for (round, between) in
        ["set m.onnx --in-place --doc changed", "strip m.onnx --in-place --names", ""]
            .iter()
            .enumerate()
    {
        let text = String::from_utf8(files.read("m.onnxtxt")).unwrap();
        fs::write(files.path("m.onnxtxt"), text.replacen("g (", &format!("g{round} ("), 1))
            .unwrap();
        if !between.is_empty() {
            run(&files, between).good();
        }
        run(&files, "parse m.onnxtxt -o m.onnx").good();
        assert_right(&files, "m.onnx", &weights);
        assert_right(&files, "m.onnxtxt", &weights);
    }
    // Values that moved to a data file are found there.
    run(&files, "externalize m.onnx --in-place --threshold 0").good();
    assert_right(&files, "m.onnxtxt", &weights);
    run(&files, "pack m.onnx --in-place").good();
    assert_right(&files, "m.onnxtxt", &weights);
    // A tensor that is renamed in the text is found under its new name in the model that was parsed
    // from it.
    let text = String::from_utf8(files.read("m.onnxtxt")).unwrap();
    let text = text.replace(" unused = ", " spare = ");
    fs::write(files.path("m.onnxtxt"), text).unwrap();
    run(&files, "parse m.onnxtxt -o m.onnx").good();
    run(&files, "parse m.onnxtxt -o m.onnx").good();
    let mut renamed = weights;
    let spare = renamed.remove("unused").unwrap();
    renamed.insert("spare".to_string(), spare);
    assert_right(&files, "m.onnx", &renamed);
}

#[test]
fn values_in_inner_graphs_and_functions_are_found() {
    let values = |seed: u8| vec![format!("{seed:02x}"); 4 * LEN].concat();
    let branch = |name: &str, seed| {
        format!(
            "graph = {name} () => (float[{LEN}] {name}0) <float[{LEN}] w = raw x\"{}\"> {{ {name}0 = Identity(w) }}",
            values(seed)
        )
    };
    let text = format!(
        "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21, \"l\": 1]> \
         g (bool c) => (float[{LEN}] y) {{ y = If<then_branch: {}, else_branch: {}>(c) z = l.f() }} \
         <domain: \"l\", opset_import: [\"\": 21]> f () => (k) {{ k = Constant<value: tensor = float[{LEN}] = raw x\"{}\">() }}",
        branch("t", 1),
        branch("e", 2),
        values(3)
    );
    let files = Files::new(&[("start.onnxtxt", text.into_bytes())]);
    run(&files, "parse start.onnxtxt -o m.onnx --no-check").good();
    run(&files, "print m.onnx -o m.onnxtxt").good();
    let text = String::from_utf8(files.read("m.onnxtxt")).unwrap();
    for path in ["y>then_branch>w", "y>else_branch>w", "(l:f:)>k>value"] {
        assert!(text.contains(&format!("\"tensor\": \"{path}\"")), "{path}: {text}");
    }
    let content = |name: &str| {
        let model = Model::open(files.path(name)).unwrap();
        let tensors = model.tensors();
        let values = tensors.iter().map(|tensor| model.value_of(tensor).unwrap());
        let firsts: Vec<u8> = values.map(|value| value.buffer().unwrap().as_slice()[0]).collect();
        firsts
    };
    assert_eq!(content("m.onnx"), [1, 2, 3]);
    run(&files, "set m.onnx --in-place --doc changed").good();
    assert_eq!(content("m.onnxtxt"), [1, 2, 3]);
}

#[test]
fn missing_tensors_are_refused_by_name() {
    let (files, _) = directory(2);
    run(&files, "print m.onnx -o m.onnxtxt").good();
    run(&files, "strip m.onnx --in-place --unused").good();
    run(&files, "parse m.onnxtxt -o n.onnx")
        .fails_with(&["no longer has a tensor 'unused'", "print the model again"]);
    // A text that was moved away from its model names the searched path once.
    fs::create_dir(files.path("away")).unwrap();
    fs::copy(files.path("m.onnxtxt"), files.path("away/t.onnxtxt")).unwrap();
    let answer = run(&files, "parse away/t.onnxtxt -o n.onnx");
    assert_eq!(answer.stderr.matches("away/m.onnx").count(), 1, "{}", answer.stderr);
    answer.fails_with(&["m.onnx", "missing", "--inline all"]);
}

#[test]
fn a_model_that_lacks_tensors_of_its_text_is_not_written() {
    let (files, weights) = directory(3);
    run(&files, "print m.onnx -o m.onnxtxt").good();
    run(&files, "strip m.onnxtxt --unused -o m.onnx").fails_with(&["'unused'", "another file"]);
    assert_right(&files, "m.onnxtxt", &weights);
    // Two weights exchange their names, so that each old name would refer to the other weight.
    let text = String::from_utf8(files.read("m.onnxtxt")).unwrap();
    let swapped = text.replace(" w1 = ", " w3 = ").replace(" w2 = ", " w1 = ");
    fs::write(files.path("t.onnxtxt"), swapped.replace(" w3 = ", " w2 = ")).unwrap();
    run(&files, "parse t.onnxtxt -o m.onnx").fails_with(&["m.onnx"]);
    assert_right(&files, "m.onnx", &weights);
    run(&files, "parse t.onnxtxt -o t.onnx").good();
    let mut swapped = weights.clone();
    swapped.insert("w1".to_string(), weights["w2"].clone());
    swapped.insert("w2".to_string(), weights["w1"].clone());
    assert_right(&files, "t.onnx", &swapped);
    // Other outputs do not replace inputs either.
    for command in ["cat m.onnxtxt w0 --raw -o m.onnx", "print m.onnxtxt -o m.onnx"] {
        run(&files, command).fails_with(&["is an input"]);
    }
    assert_right(&files, "m.onnx", &weights);
}

#[test]
fn files_beside_texts_are_not_overwritten() {
    let (files, weights) = directory(4);
    run(&files, "print m.onnx --sidecar -o m.onnxtxt").good();
    let first = files.read("m.onnxtxt.data");
    fs::rename(files.path("m.onnxtxt"), files.path("old.onnxtxt")).unwrap();
    // An equal file of values is reused.
    run(&files, "print m.onnx --sidecar -o m.onnxtxt").good();
    assert!(files.read("m.onnxtxt.data") == first);
    assert!(!files.names().contains(&"m-2.onnxtxt.data".to_string()));
    let other = weights_from(5);
    fs::write(files.path("other.onnxtxt"), text_of(&other)).unwrap();
    run(&files, "print other.onnxtxt --sidecar -o m.onnxtxt").good();
    assert_right(&files, "old.onnxtxt", &weights);
    assert_right(&files, "m.onnxtxt", &other);
    // A file of values with other content is refused.
    fs::copy(files.path("m-2.onnxtxt.data"), files.path("m.onnxtxt.data")).unwrap();
    run(&files, "parse old.onnxtxt -o n.onnx").fails_with(&["m.onnxtxt.data", "has changed"]);
}

#[test]
fn digests_of_values_are_compared() {
    let (files, weights) = directory(6);
    run(&files, "print m.onnx --digest -o m.onnxtxt").good();
    assert_right(&files, "m.onnxtxt", &weights);
    // The model gets other values in an equal structure.
    fs::write(files.path("start.onnxtxt"), text_of(&weights_from(7))).unwrap();
    run(&files, "parse start.onnxtxt -o m.onnx").good();
    for command in ["parse m.onnxtxt -o n.onnx", "info m.onnxtxt"] {
        let answer = run(&files, command);
        assert_eq!(answer.code, Some(2), "{}", answer.stderr);
        assert_eq!(
            answer.stderr.matches("SHA-256 differs from the one in the ONNX text").count(),
            6,
            "{}",
            answer.stderr
        );
    }
}

#[test]
fn texts_without_digests_are_read_with_a_warning() {
    let (files, weights) = directory(8);
    run(&files, "print m.onnx -o m.onnxtxt").good();
    let text = String::from_utf8(files.read("m.onnxtxt")).unwrap();
    let lines = text.lines().filter(|line| !line.contains("files: ["));
    let mut old: String = lines.map(|line| format!("{line}\n")).collect();
    old = old.replacen("],\n>", "]\n>", 1);
    while let Some(start) = old.find("\"tensor\": \"") {
        let end = start + old[start..].find("\",").unwrap() + 2;
        old.replace_range(start..end, "");
    }
    fs::write(files.path("m.onnxtxt"), old).unwrap();
    let answer = run(&files, "parse m.onnxtxt -o n.onnx");
    assert_eq!(answer.stderr.matches("cannot be checked").count(), 1, "{}", answer.stderr);
    answer.good();
    assert_right(&files, "n.onnx", &weights);
    // Without names, the text could not find its tensors in the new model.
    let answer = run(&files, "parse m.onnxtxt -o m.onnx");
    assert_eq!(answer.code, Some(2), "{}", answer.stderr);
    assert!(answer.stderr.contains("without naming the tensors"), "{}", answer.stderr);
    assert_right(&files, "m.onnx", &weights);
}

#[test]
fn a_part_printed_alone_is_complete() {
    let (files, _) = directory(9);
    let text = run(&files, "print m.onnx --range 3").good();
    assert!(text.contains("\"tensor\": \"constant>value\""), "{text}");
    assert!(text.contains("\"file_digest\": \""), "{text}");
}

/// Text or model of a sequence, with its required content.
#[derive(Clone)]
struct Entry {
    weights: Weights,
    /// Whether two tensors of the text have exchanged their names.
    swapped: bool,
    /// File with the values of a text: its name, the weights that it held, and whether the text has
    /// their digests.
    source: Option<(String, Weights, bool)>,
}

/// Generator xorshift64*, which gives equal numbers on all platforms.
struct Random(u64);

impl Random {
    fn next_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }

    fn choose<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.next_below(items.len())]
    }
}

const MODELS: [&str; 3] = ["m.onnx", "a.onnx", "b.onnx"];
const TEXTS: [&str; 3] = ["m.onnxtxt", "s.onnxtxt", "t.onnxtxt"];

struct Sequence {
    files: Files,
    entries: BTreeMap<String, Entry>,
    random: Random,
    done: Vec<String>,
    right: usize,
    refused: usize,
}

impl Sequence {
    fn new(seed: usize) -> Sequence {
        let (files, weights) = directory(seed % 50);
        let entry = Entry { weights, swapped: false, source: None };
        Sequence {
            files,
            entries: BTreeMap::from([("m.onnx".to_string(), entry)]),
            random: Random(seed as u64 + 0x9e37_79b9_7f4a_7c15),
            done: Vec::new(),
            right: 0,
            refused: 0,
        }
    }

    fn step(&mut self) {
        let names: Vec<String> = self.entries.keys().cloned().collect();
        let from = self.random.choose(&names).clone();
        let model = *self.random.choose(&MODELS);
        let (text, is_text) = (*self.random.choose(&TEXTS), from.ends_with("txt"));
        let to = match self.random.next_below(2) {
            0 => ("--in-place".to_string(), from.clone()),
            _ => (format!("-o {model}"), model.to_string()),
        };
        let (place, target) = to;
        match self.random.next_below(10) {
            0 | 1 => {
                let how = *self.random.choose(&["", " --sidecar", " --digest", " --inline all"]);
                self.command(&from, text, &format!("print {from} -o {text}{how}"));
            }
            2 | 3 if is_text => self.command(&from, model, &format!("parse {from} -o {model}")),
            4 => self.command(&from, &target, &format!("set {from} --doc x {place}")),
            5 => self.command(&from, &target, &format!("pack {from} {place}")),
            6 if target.ends_with(".onnx") => {
                let how =
                    *self.random.choose(&["", " --per-tensor", " --data w.data", " --replace"]);
                let line = format!("externalize {from} --threshold 0 {place}{how}");
                self.command(&from, &target, &line);
            }
            7 => {
                let what = *self.random.choose(&["--names", "--unused"]);
                self.command(&from, &target, &format!("strip {from} {what} {place}"));
            }
            8 if is_text => self.edit(&from),
            9 if self.entries.len() > 1 => {
                fs::remove_file(self.files.path(&from)).unwrap();
                self.entries.remove(&from);
                self.done.push(format!("rm {from}"));
            }
            _ => {}
        }
        self.check();
    }

    /// Runs a command, or kills it after a random time.
    fn command(&mut self, from: &str, target: &str, line: &str) {
        let args: Vec<String> = line.split(' ').map(|word| argument(&self.files, word)).collect();
        let mut after = self.entries[from].clone();
        let digest = line.contains("--digest");
        let refers = from.ends_with(".onnx") && line.starts_with("print");
        // A printed text refers to the model for its values, unless they are written elsewhere.
        after.source = if refers && !line.contains("--sidecar") && !line.contains("all") {
            Some((from.to_string(), after.weights.clone(), digest))
        } else {
            None
        };
        after.swapped = false;
        if line.contains("--unused") {
            after.weights.remove("unused");
            after.weights.remove("spare");
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_sardonyx"));
        command.args(&args).stdin(Stdio::null()).stdout(Stdio::null());
        if self.random.next_below(5) == 0 {
            let moment = self.random.next_below(12_000) as u64;
            let content = |files: &Files| fs::read(files.path(target)).ok();
            let content_before = content(&self.files);
            let mut child = command.stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_micros(moment));
            child.kill().unwrap();
            let code = child.wait().unwrap().code();
            self.done.push(format!("{line} (killed after {moment} µs: {code:?})"));
            // A changed file shows that the command had finished.
            if content(&self.files) != content_before {
                self.entries.insert(target.to_string(), after);
            }
            return;
        }
        let answer = command.stderr(Stdio::piped()).output().unwrap();
        let stderr = String::from_utf8_lossy(&answer.stderr);
        self.done.push(format!("{line} ({:?})", answer.status.code()));
        match answer.status.code() {
            Some(0) => {
                self.entries.insert(target.to_string(), after);
            }
            Some(2) => {
                assert!(stderr.starts_with("error: ") || stderr.contains("error"), "{stderr}")
            }
            code => panic!("{code:?}: {stderr}\nafter {:#?}", self.done),
        }
    }

    /// Edits a text: adds a comment, exchanges the names of two weights, or renames a weight.
    fn edit(&mut self, name: &str) {
        let path = self.files.path(name);
        let text = fs::read_to_string(&path).unwrap();
        let entry = self.entries.get_mut(name).unwrap();
        let kind = self.random.next_below(3);
        let text = match kind {
            0 => format!("# edited\n{text}"),
            1 => {
                let pair = (entry.weights["w1"].clone(), entry.weights["w2"].clone());
                entry.weights.insert("w1".to_string(), pair.1);
                entry.weights.insert("w2".to_string(), pair.0);
                entry.swapped = !entry.swapped;
                let text = text.replace(" w1 = ", " w3 = ").replace(" w2 = ", " w1 = ");
                text.replace(" w3 = ", " w2 = ")
            }
            _ => {
                if let Some(values) = entry.weights.remove("unused") {
                    entry.weights.insert("spare".to_string(), values);
                }
                text.replace(" unused = ", " spare = ")
            }
        };
        fs::write(path, text).unwrap();
        self.done.push(format!("edit {name}: {kind}"));
    }

    /// Checks the content of all texts and models.
    fn check(&mut self) {
        let mut gone = Vec::new();
        for (name, entry) in &self.entries {
            let found = read(&self.files.path(name));
            // A text stands for the values that its file has under these names. If the file has
            // other values now, the text stands for those.
            let (mut may_be_refused, mut means_others) = (false, false);
            if let Some((file, then, digests)) = &entry.source {
                let now = self.entries.get(file).map(|entry| &entry.weights);
                let same = now.is_some_and(|now| {
                    then.iter().all(|(name, values)| now.get(name) == Some(values))
                });
                // With exchanged names, a text does not show from which model a changed file was
                // made.
                may_be_refused = !same || entry.swapped;
                means_others = !same && !digests;
            }
            match found {
                Ok((weights, output)) => {
                    let right = weights == entry.weights && output == output_of(&weights);
                    if right {
                        self.right += 1;
                    } else if means_others {
                        gone.push(name.clone());
                    } else {
                        panic!("{name} is silently different after {:#?}", self.done);
                    }
                }
                Err(why) => {
                    self.refused += 1;
                    assert!(!why.is_empty());
                    assert!(may_be_refused, "{name} is rejected: {why}\nafter {:#?}", self.done);
                }
            }
        }
        for name in gone {
            self.entries.remove(&name);
            let _ = fs::remove_file(self.files.path(&name));
        }
    }
}

#[test]
fn random_sequences_are_right_or_refused() {
    let sequences = std::env::var("EDIT_SEQUENCES").ok();
    let sequences = sequences.map_or(60, |count| count.parse().unwrap());
    let (mut right, mut refused) = (0, 0);
    for seed in 0..sequences {
        let mut sequence = Sequence::new(seed);
        for _ in 0..12 {
            sequence.step();
        }
        right += sequence.right;
        refused += sequence.refused;
    }
    println!("{sequences} sequences: {right} right, {refused} refused");
    assert!(right > 10 * refused, "{right} right, {refused} refused");
}

/// Checks that values in data files are written into a text that cannot refer to them, and into one
/// with all values.
#[test]
fn values_in_data_files_are_printed_where_the_text_cannot_refer_to_them() {
    let values: Vec<u8> = (1..=4).flat_map(|value| (value as f32).to_le_bytes()).collect();
    let files =
        Files::new(&[("m.onnx", support::with_external_data("w.data")), ("w.data", values)]);
    fs::create_dir(files.path("far")).unwrap();
    for (text, options) in [
        ("far/a.onnxtxt", &[][..]),
        ("far/b.onnxtxt", &["--inline", "all"]),
        ("far/c.onnxtxt", &["--portable"]),
        ("far/d.onnxtxt", &["--sidecar", "--inline", "0"]),
    ] {
        let (text, back) = (files.path(text), files.path("far/back.onnx"));
        files.run("print", "m.onnx", &[options, &["-o", &text]].concat()).good();
        assert!(!fs::read_to_string(&text).unwrap().contains("w.data"), "{text}");
        sardonyx(&["parse", &text, "-o", &back]).good();
        let model = Model::open(&back).unwrap();
        let value = model.value_of(&model.tensors()[0]).unwrap();
        assert_eq!(value.to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0], "{text}");
    }
    // Beside the model, the text refers to its data file.
    files.run("print", "m.onnx", &["-o", &files.path("m.onnxtxt")]).good();
    assert!(fs::read_to_string(files.path("m.onnxtxt")).unwrap().contains("\"w.data\""));
    fs::remove_file(files.path("w.data")).unwrap();
    let answer = sardonyx(&["parse", &files.path("m.onnxtxt"), "-o", &files.path("n.onnx")]);
    assert!(answer.stderr.contains("'w.data' with the values of 1 tensor"), "{}", answer.stderr);
    let far = files.path("far/e.onnxtxt");
    files.run("print", "m.onnx", &["-o", &far]).fails_with(&["'w.data', which is missing"]);
    assert!(!std::path::Path::new(&far).exists());
}
