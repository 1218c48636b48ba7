//! Tests of sessions whose model files change. A session that has been made reads no file again and
//! keeps no descriptor. A session that shares its mapping with other processes refuses changed
//! files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

#[cfg(feature = "device")]
use sardonyx::device::{DeviceOptions, DeviceSession, Division, ShardOptions};
use sardonyx::io::{Access, Layout, Weights};
use sardonyx::run::Optimization;
use sardonyx::tool::{SessionBuilderExt, SessionExt};
use sardonyx::train;
use sardonyx::train::Loss;
use sardonyx::{
    Error, ErrorKind, Model, OpenOptions, SaveOptions, Session, Tensor, Trainer, Value,
};

/// Rows and columns of the large constants: more elements than inference keeps of a value.
const SIDE: usize = 48;

/// Names and texts of the models. `$T` stands for the elements of a large constant, `$S` for those
/// of a small one.
const MODELS: &[(&str, &str)] = &[
    ("gather", "(int64[K] i) => (float[K, 48] y) <float[48, 48] t = $T> { y = Gather (t, i) }"),
    ("add", "(float[R, 48] x) => (float[R, 48] y) <float[1, 48] s = $S> { y = Add (x, s) }"),
    ("large add", "(float[48, 48] x) => (float[48, 48] y) <float[48, 48] t = $T> { y = Add (x, t) }"),
    ("output", "(int64[K] i) => (float[48, 48] y) <float[48, 48] t = $T> { y = Identity (t) }"),
    (
        "default",
        "(int64[K] i, float[48, 48] t) => (float[K, 48] y) <float[48, 48] t = $T> \
         { y = Gather (t, i) }",
    ),
    (
        "attribute",
        "(int64[K] i) => (float[K, 48] y) \
         { t = Constant <value: tensor = float[48, 48] $T> () y = Gather (t, i) }",
    ),
    (
        "branches",
        "(int64[K] i, bool c) => (float[K, 48] y) <float[48, 48] t = $T> {
           y = If (c) <
             then_branch: graph = a () => (float[K, 48] p) { p = Gather (t, i) },
             else_branch: graph = b () => (float[K, 48] q) <float[48, 48] u = $T>
               { r = Gather (u, i) q = Neg (r) }> }",
    ),
    (
        "loop",
        "(int64[K] i) => (float[K, 48] y) <float[48, 48] t = $T, int64 n = {3}> {
           z = Gather (t, i)
           y = Loop (n, , z) <body: graph = b (int64 k, bool c, float[K, 48] v)
               => (bool d, float[K, 48] w)
             { d = Identity (c) g = Gather (t, i) w = Add (v, g) }> }",
    ),
    ("product", "(float[R, 48] x) => (float[R, 48] y) <float[48, 48] t = $T> { y = MatMul (x, t) }"),
    (
        "product of both",
        "(float[R, 48] x, int64[K] i) => (float[R, 48] y, float[K, 48] z) <float[48, 48] t = $T>
         { y = MatMul (x, t) z = Gather (t, i) }",
    ),
    (
        "convolution",
        "(float[B, 16, 5, 5] v) => (float[B, 16, 3, 3] y) <float[16, 16, 3, 3] t = $T>
         { y = Conv (v, t) }",
    ),
    (
        "transposed convolution",
        "(float[B, 16, 5, 5] v) => (float[] y) <float[16, 16, 3, 3] t = $T>
         { y = ConvTranspose (v, t) }",
    ),
    (
        "recurrence",
        "(float[B, 1, 24] s) => (float[] y)
         <float[1, 96, 24] t = $T, float[1, 96, 24] u = $T> { y = LSTM <hidden_size: int = 24> (s, t, u) }",
    ),
    (
        "contraction",
        "(float[R, 48] x) => (float[R, 48] y) <float[48, 48] t = $T>
         { y = Einsum <equation: string = \"ab,cb->ac\"> (x, t) }",
    ),
    (
        "folded",
        "(int64[K] i) => (float[K, 48] y) <float[48, 48] t = $T>
         { u = Transpose (t) v = Reshape (u, s) y = Gather (v, i) s = Constant <value: tensor = int64[2] {48, 48}> () }",
    ),
    (
        "concatenation",
        "(float[R, 48] x) => (float[] y) <float[48, 48] t = $T>
         { y = Concat <axis: int = 0> (x, t) }",
    ),
    (
        "scatter",
        "(int64[K] i) => (float[48, 48] y) <float[48, 48] t = $T>
         { z = Gather (t, i) y = ScatterND (t, j, z) a = Constant <value: tensor = int64[1] {1}> () j = Unsqueeze (i, a) }",
    ),
    (
        "slices",
        "(int64[1] k) => (float[] y) <float[48, 48] t = $T>
         { z = Constant <value: tensor = int64[1] {0}> () y = Slice (t, z, k) }",
    ),
];

/// Writes elements that differ between the file and its changed version, by `factor`.
fn numbers(count: usize, factor: usize) -> String {
    let numbers = (0..count).map(|n| (n * 7 % 31 * factor).to_string());
    format!("{{{}}}", numbers.collect::<Vec<_>>().join(", "))
}

fn model(text: &str, factor: usize) -> Model {
    let text =
        text.replace("$T", &numbers(SIDE * SIDE, factor)).replace("$S", &numbers(SIDE, factor));
    let text = format!("<ir_version: 8, opset_import: [\"\": 17]> a_graph_of_files {text}");
    Model::from_text(&text).unwrap_or_else(|error| panic!("{error}"))
}

/// Makes the inputs of a model, in a size.
fn inputs(session: &Session, size: usize) -> Vec<(String, Value)> {
    let floats = |dims: &[usize]| {
        let count = dims.iter().product();
        let floats: Vec<f32> = (0..count).map(|n: usize| (n % 13) as f32 / 4.0 - 1.0).collect();
        Tensor::from_vec(dims, floats).unwrap()
    };
    let mut inputs = Vec::new();
    for port in session.inputs().iter().filter(|port| port.is_required()) {
        let value = match port.name() {
            "i" => {
                let indices = (0..size as i64).map(|n| n * 5).collect::<Vec<_>>();
                Tensor::from_vec([size], indices).unwrap()
            }
            "k" => Tensor::from_vec([1], vec![size as i64 + 1]).unwrap(),
            "c" => Tensor::from_bools([], &[size > 2]).unwrap(),
            "v" => floats(&[size, 16, 5, 5]),
            "s" => floats(&[size, 1, 24]),
            _ if port.ty().is_some_and(|ty| ty.to_string().contains("48, 48")) => {
                floats(&[SIDE, SIDE])
            }
            _ => floats(&[size, SIDE]),
        };
        inputs.push((port.name().to_string(), Value::from(value)));
    }
    inputs
}

fn run(session: &Session, size: usize) -> Result<Vec<Vec<u8>>, Error> {
    let outputs = session.run(inputs(session, size), &Default::default())?;
    let outputs = outputs.iter();
    Ok(outputs.map(|(_, value)| value.as_tensor().unwrap().bytes().to_vec()).collect())
}

/// Change of a model file.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    SavedAgain,
    Shortened,
    Emptied,
    Removed,
    Replaced,
}

const CHANGES: [Change; 5] =
    [Change::SavedAgain, Change::Shortened, Change::Emptied, Change::Removed, Change::Replaced];

impl Change {
    /// Changes the file at `path`; `other` are the bytes of another model.
    fn apply(self, path: &Path, other: &[u8]) {
        let open = || fs::OpenOptions::new().write(true).open(path).unwrap();
        match self {
            Change::SavedAgain => {
                assert_eq!(fs::metadata(path).unwrap().len(), other.len() as u64);
                open().write_all(other).unwrap();
            }
            Change::Shortened => open().set_len(100).unwrap(),
            Change::Emptied => open().set_len(0).unwrap(),
            Change::Removed => fs::remove_file(path).unwrap(),
            Change::Replaced => {
                let new = path.with_extension("new");
                fs::write(&new, other).unwrap();
                fs::rename(new, path).unwrap();
            }
        }
    }
}

/// Storage of the values in the files of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    Raw,
    Typed,
    /// A data file for each tensor.
    Beside,
}

/// Saves a model and returns the paths of all of its files, the model first.
fn save(directory: &Path, model: &Model, form: Form) -> Vec<PathBuf> {
    let weights = if form == Form::Beside { Weights::Outside } else { Weights::Inside };
    let options = SaveOptions::new().weights(weights).layout(Layout::PerTensor).threshold(64);
    let options = options.attributes(true).typed_values(form == Form::Beside).sync(false);
    let path = directory.join("model.onnx");
    let mut model = model.clone();
    if form == Form::Raw {
        // Through data files, because values of typed lists are read back from them as raw data.
        let beside = directory.join("raw");
        fs::create_dir(&beside).unwrap();
        let there = save(&beside, &model, Form::Beside).remove(0);
        model = Model::read_file(there).unwrap().with_values_inside().unwrap();
        fs::remove_dir_all(beside).unwrap();
    }
    options.save(&model, &path).unwrap();
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort_by_key(|file| *file != path);
    files
}

/// A session, the files of its model, and the bytes that the files would have with other weights.
struct Case {
    _directory: tempfile::TempDir,
    files: Vec<PathBuf>,
    others: Vec<Vec<u8>>,
    session: Session,
}

fn case(text: &str, form: Form, access: Access, level: Optimization) -> Case {
    let directory = tempfile::tempdir().unwrap();
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    let others = save(&other, &model(text, 2), form);
    let others = others.iter().map(|file| fs::read(file).unwrap()).collect();
    fs::remove_dir_all(&other).unwrap();
    let files = save(directory.path(), &model(text, 1), form);
    let model = OpenOptions::new().access(access).open(&files[0]).unwrap();
    let session = Session::builder(&model).threads(1).optimization(level).build().unwrap();
    Case { _directory: directory, files, others, session }
}

#[test]
fn changed_files_do_not_affect_sessions() {
    for (name, text) in MODELS {
        for form in [Form::Raw, Form::Typed, Form::Beside] {
            for level in [Optimization::All, Optimization::Off] {
                let expected = case(text, form, Access::Read, level).session;
                let expected = [2, 5].map(|size| run(&expected, size).unwrap());
                for (access, change) in [Access::Map, Access::Read]
                    .into_iter()
                    .flat_map(|access| CHANGES.map(|change| (access, change)))
                {
                    let what = format!("{name}, {form:?}, {level:?}, {access:?}, {change:?}");
                    let case = case(text, form, access, level);
                    // Some kernels pack weights in their first run; half of the changes come before
                    // it.
                    let runs_before = change == Change::SavedAgain || change == Change::Emptied;
                    if runs_before {
                        assert_eq!(run(&case.session, 2).unwrap(), expected[0], "{what}, before");
                    }
                    for (file, other) in case.files.iter().zip(&case.others) {
                        change.apply(file, other);
                    }
                    assert_eq!(run(&case.session, 5).unwrap(), expected[1], "{what}");
                    assert_eq!(run(&case.session, 2).unwrap(), expected[0], "{what}");
                    // Names of steps come from the model, so they must not be read from the file.
                    assert!(!case.session.steps().is_empty() || *name == "output", "{what}");
                }
            }
        }
    }
}

#[test]
fn a_session_that_shares_refuses_each_file_that_changed() {
    for (name, text) in [MODELS[0], MODELS[5], MODELS[9]] {
        for form in [Form::Raw, Form::Beside] {
            let count = case(text, form, Access::Share, Optimization::All).files.len();
            assert_eq!(count > 1, form == Form::Beside, "{name}");
            for (changed, change) in
                (0..count).flat_map(|file| CHANGES.map(|change| (file, change)))
            {
                let case = case(text, form, Access::Share, Optimization::All);
                let expected = run(&case.session, 2).unwrap();
                assert_eq!(run(&case.session, 2).unwrap(), expected);
                change.apply(&case.files[changed], &case.others[changed]);
                let error = run(&case.session, 2).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Io, "{name}, {change:?}: {error}");
                assert_eq!(error.place(), case.files[changed].to_str(), "{name}, {change:?}");
                let how = match change {
                    Change::SavedAgain => "changed",
                    Change::Shortened => "has 100 bytes",
                    Change::Emptied => "has 0 bytes",
                    Change::Removed => "is missing",
                    Change::Replaced => "replaced by another file",
                };
                assert!(error.message().contains(how), "{change:?}: {error}");
                let into = case.session.run_into(&[], &mut [], &Default::default()).unwrap_err();
                assert_eq!(into.kind(), ErrorKind::Io);
                let lent = case.session.run_lending(&[], &Default::default(), |_, _, _| None);
                assert_eq!(lent.unwrap_err().kind(), ErrorKind::Io);
            }
        }
    }
}

#[test]
fn a_file_that_changes_before_a_session_is_made_is_an_error() {
    for (change, is_error) in [
        (Change::SavedAgain, true),
        (Change::Shortened, true),
        // The mapping of a removed or replaced file keeps its content.
        (Change::Removed, false),
        (Change::Replaced, false),
    ] {
        for form in [Form::Raw, Form::Beside] {
            let case = case(MODELS[0].1, form, Access::Map, Optimization::All);
            let opened = Model::open(&case.files[0]).unwrap();
            // This opens the data files.
            let first = Session::new(&opened).unwrap();
            let expected = run(&first, 2).unwrap();
            for (file, other) in case.files.iter().zip(&case.others) {
                change.apply(file, other);
            }
            match Session::new(&opened) {
                Ok(second) => {
                    assert!(!is_error, "{change:?}");
                    assert_eq!(run(&second, 2).unwrap(), expected, "{change:?}");
                }
                Err(error) => {
                    assert!(is_error, "{change:?}: {error}");
                    assert_eq!(error.kind(), ErrorKind::Io);
                    assert!(error.place().is_some_and(|place| place.contains(".onnx")), "{error}");
                }
            }
        }
    }
}

/// Lists the mappings and descriptors of the process under a path.
#[cfg(target_os = "linux")]
fn held_under(path: &Path) -> (Vec<String>, Vec<PathBuf>) {
    let path = path.to_str().unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains(path)).map(str::to_string).collect();
    let descriptors = fs::read_dir("/proc/self/fd").unwrap();
    let targets = descriptors.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let open = targets.filter(|target| target.starts_with(path)).collect();
    (mapped, open)
}

/// Checks for every model of some test data that a session keeps no mapping of its files.
#[cfg(target_os = "linux")]
#[test]
fn sessions_let_files_go() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let mut texts: Vec<(String, Model)> = Vec::new();
    for directory in ["run", "inline", "infer", "convert"] {
        let mut open = vec![data.join(directory)];
        while let Some(directory) = open.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else if path.extension().is_some_and(|suffix| suffix == "onnxtxt") {
                    let model = Model::read_file(&path).ok();
                    let model = model.and_then(|model| model.with_values_inside().ok());
                    texts.extend(model.map(|model| (path.display().to_string(), model)));
                }
            }
        }
    }
    texts.extend(MODELS.iter().map(|(name, text)| (name.to_string(), model(text, 1))));
    let mut made = 0;
    for (name, model) in texts {
        for form in [Form::Typed, Form::Raw, Form::Beside] {
            let directory = tempfile::tempdir().unwrap();
            let real = directory.path().canonicalize().unwrap();
            let path = save(&real, &model, form).remove(0);
            for (level, looks) in
                [(Optimization::All, false), (Optimization::Off, false), (Optimization::All, true)]
            {
                let opened = Model::open(&path).unwrap();
                let builder = Session::builder(&opened).threads(1).optimization(level);
                let builder = if looks { builder.inspect_only() } else { builder };
                let Ok(session) = builder.build() else { continue };
                let (mapped, open) = held_under(&real);
                assert!(!mapped.is_empty() && open.is_empty(), "{name}: {open:?}");
                drop(opened);
                let (mapped, _) = held_under(&real);
                assert!(mapped.is_empty(), "{name}, {form:?}, {level:?}, {looks}: {mapped:?}");
                // Names of steps must not need the file.
                session.steps();
                made += 1;
            }
        }
    }
    assert!(made > 300, "{made} sessions");
}

#[cfg(target_os = "linux")]
#[test]
fn a_shared_session_keeps_the_mapping_and_no_descriptor() {
    for form in [Form::Raw, Form::Beside] {
        let case = case(MODELS[0].1, form, Access::Share, Optimization::All);
        let real = case.files[0].parent().unwrap().canonicalize().unwrap();
        let (mapped, open) = held_under(&real);
        assert_eq!((mapped.len(), open.len()), (1, 0), "{form:?}: {mapped:?}");
    }
}

/// Checks that a trainer can save its state and export its model after the file has changed.
#[test]
fn trainers_keep_their_model() {
    let text = "<ir_version: 8, opset_import: [\"\": 17]>
        line (float[N, 48] x) => (float[N, 48] y) <float[48, 48] w = $T> { y = MatMul (x, w) }";
    let text = text.replace("$T", &numbers(SIDE * SIDE, 1));
    let plain = Model::from_text(&text).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let options = train::TrainingOptions::new(Loss::SquaredError { output: None });
    let (trained, _) = plain.add_training(&options).unwrap();
    for change in CHANGES {
        let path = directory.path().join(format!("{change:?}.onnx"));
        SaveOptions::new().sync(false).save(&trained, &path).unwrap();
        let trainer = Trainer::new(&Model::open(&path).unwrap()).unwrap();
        let before = trainer.export().unwrap().content_hash().unwrap();
        let other: Vec<u8> = fs::read(&path).unwrap().iter().map(|byte| byte ^ 1).collect();
        change.apply(&path, &other);
        assert_eq!(trainer.export().unwrap().content_hash().unwrap(), before, "{change:?}");
    }
}

/// Checks that a session on devices never mixes old and new weights of a changed file: a run with
/// other sizes makes another plan, which reads large constants again.
#[test]
#[cfg(feature = "device")]
fn devices_never_use_the_weights_of_a_changed_file() {
    let text = format!(
        "<ir_version: 11, opset_import: [\"\": 21]>
         g (float[R, 48] x) => (float[R, 48] y) <float[48, 48] a = {0}, float[48, 48] b = {0}>
         {{ p = MatMul (x, a) r = Relu (p) y = MatMul (r, b) }}",
        numbers(SIDE * SIDE, 1)
    );
    let plain = Model::from_text(&text).unwrap();
    let (divided, _) =
        plain.shard(&ShardOptions::new(Division::Tensor, 2).configuration("c")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let run = |session: &DeviceSession, rows: usize| {
        let x = Tensor::from_vec([rows, SIDE], vec![1f32; rows * SIDE]).unwrap();
        let outputs = session.run([("x", x)], &Default::default())?;
        Ok::<_, Error>(outputs.tensor("y").unwrap().bytes().to_vec())
    };
    let devices = |model: &Model| Session::builder(model).threads(1).devices(DeviceOptions::new());
    let expected = devices(&divided).unwrap();
    let expected = [1, 4].map(|rows| run(&expected, rows).unwrap());
    for change in CHANGES {
        let path = directory.path().join(format!("{change:?}.onnx"));
        SaveOptions::new().sync(false).save(&divided, &path).unwrap();
        let session = devices(&Model::open(&path).unwrap()).unwrap();
        assert_eq!(run(&session, 4).unwrap(), expected[1]);
        let other: Vec<u8> = fs::read(&path).unwrap().iter().map(|byte| byte ^ 1).collect();
        change.apply(&path, &other);
        assert_eq!(run(&session, 4).unwrap(), expected[1], "{change:?}");
        match run(&session, 1) {
            Ok(found) => assert_eq!(found, expected[0], "{change:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{change:?}: {error}");
                assert!(error.place().is_some_and(|place| place.contains(path.to_str().unwrap())));
                assert!(!matches!(change, Change::Removed | Change::Replaced), "{error}");
            }
        }
    }
}
