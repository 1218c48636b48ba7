//! Tests of exported models and saved states.

use std::fs;
use std::path::PathBuf;

use sardonyx::io::Weights;
use sardonyx::tool::{npy, npz, safetensors};
use sardonyx::train::{Loss, OptimizerKind, TrainingOptions};
use sardonyx::{ErrorKind, Model, RunOptions, SaveOptions, Session, Tensor, Trainer};

use super::{
    ADD_AND_DOUBLE, DESCENT, RANDOM, bits, descent_data, model, output, trainer, value_of, vector,
    x,
};

/// Checks that an untrained model with training information is exported byte by byte, and that a
/// session runs it. After a step, the inference model returns the outputs of `infer`, and the
/// exported model continues from the state of the trainer (MODEL-12+-, TRAIN-27+).
#[test]
fn an_export_has_the_current_values() {
    let model = model(DESCENT);
    let mut trainer = Trainer::new(&model).expect("a trainer");
    // An unassigned variable keeps its encoding in the file.
    assert_eq!(trainer.export().expect("an export").to_bytes(), model.to_bytes());
    let untrained = trainer.infer(x(&[3.0, 5.0]), &RunOptions::default()).expect("a run");
    let session = Session::new(&model).expect("a session");
    assert_eq!(session.run(x(&[3.0, 5.0]), &RunOptions::default()).expect("a run"), untrained);
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    let infer = trainer.infer(x(&[3.0, 5.0]), &RunOptions::default()).expect("a run");
    let inference = trainer.export_inference().expect("an export");
    assert_eq!(inference.training_steps(), 0);
    let inference = Model::from_bytes(inference.to_bytes()).expect("a model");
    let session = Session::new(&inference).expect("a session");
    assert_eq!(session.run(x(&[3.0, 5.0]), &RunOptions::default()).expect("a run"), infer);
    assert!(Trainer::new(&inference).is_err());

    let exported = Model::from_bytes(trainer.export().expect("an export").to_bytes());
    let mut again = Trainer::new(&exported.expect("a model")).expect("a trainer");
    assert_eq!(bits(&again), bits(&trainer));
    for trainer in [&mut again, &mut trainer] {
        trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    }
    assert_eq!(bits(&again), bits(&trainer));
    assert_eq!(model.to_bytes(), self::model(DESCENT).to_bytes());
}

/// Checks that state variables may have external data.
#[test]
fn stored_values_may_lie_in_data_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("m.onnx");
    let options = SaveOptions::new().weights(Weights::Outside).typed_values(true).threshold(0);
    options.save(&model(DESCENT), &path).expect("saved");
    let model = Model::open(&path).expect("a model");
    assert!(model.external_files().iter().len() > 0);
    let mut trainer = Trainer::new(&model).expect("a trainer");
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_eq!(value_of(&trainer, "w"), [0.5, -2.0]);
    let out = directory.path().join("out.onnx");
    trainer.export().expect("an export").save(&out).expect("saved");
    let again = Trainer::new(&Model::open(&out).expect("a model")).expect("a trainer");
    assert_eq!(value_of(&again, "w"), [0.5, -2.0]);
}

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Checks that a loaded state includes the random generator, so that training continues with the
/// same numbers.
#[test]
fn a_state_is_saved_and_loaded() {
    let files = Files::new();
    let model = model(RANDOM);
    let four = || x(&[1.0, 1.0, 1.0, 1.0]);
    let mut trainer = Trainer::builder(&model).seed(3).build().expect("a trainer");
    trainer.initialize(&RunOptions::default()).expect("an initialization");
    trainer.step(0, four(), &RunOptions::default()).expect("a step");
    let saved = bits(&trainer);
    for name in ["state.npz", "state.safetensors"] {
        trainer.save(files.path(name)).expect("saved");
    }
    trainer.step(0, four(), &RunOptions::default()).expect("a step");
    for name in ["state.npz", "state.safetensors"] {
        let mut other = Trainer::new(&model).expect("a trainer");
        other.load(files.path(name)).expect("loaded");
        assert_eq!(bits(&other), saved, "{name}");
        assert_eq!(other.seed(), 3);
        other.step(0, four(), &RunOptions::default()).expect("a step");
        assert_eq!(bits(&other), bits(&trainer), "{name}");
    }
    let names = |path| {
        let bytes = fs::read(path).expect("a file");
        npz::read(&bytes.into()).expect("an archive").into_iter().map(|(name, _)| name)
    };
    let names: Vec<String> = names(files.path("state.npz")).collect();
    assert_eq!(names, ["w", "sardonyx.model", "sardonyx.generator"]);
    let error = trainer.save(files.path("state.txt")).expect_err("no such form");
    assert!(error.help().is_some_and(|help| help.contains(".safetensors or .npz")), "{error}");
}

/// Checks that a saved state includes the position in the data, and that a hash of earlier
/// releases, which covered device annotations, is accepted.
#[test]
fn a_state_has_a_place_in_the_data() {
    let files = Files::new();
    let model = model(DESCENT);
    let mut trainer = Trainer::new(&model).expect("a trainer");
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    trainer.set_data_position(3, 40);
    for name in ["state.npz", "state.safetensors"] {
        trainer.check_save(files.path(name)).expect("it can be written");
        assert!(!files.path(name).exists());
        trainer.save(files.path(name)).expect("saved");
        let mut other = Trainer::new(&model).expect("a trainer");
        other.load(files.path(name)).expect("loaded");
        assert_eq!(other.data_position(), trainer.data_position(), "{name}");
        other.initialize(&RunOptions::default()).expect("an initialization");
        assert_eq!(other.data_position(), sardonyx::train::DataPosition::default());
    }

    let bytes = fs::read(files.path("state.npz")).expect("a file").into();
    let arrays = npz::read(&bytes).expect("an archive").into_iter();
    let arrays = arrays.map(|(name, bytes)| (name, npy::read(&bytes).expect("an array")));
    let mut arrays: Vec<(String, Tensor)> =
        arrays.filter(|(name, _)| name != "sardonyx.data").collect();
    let hash = model.content_hash().expect("a hash").into_bytes();
    arrays[1].1 = Tensor::from_vec([hash.len()], hash).expect("a tensor");
    let old = fs::File::create(files.path("old.npz")).expect("a file");
    let pairs = arrays.iter().map(|(name, array)| (name.as_str(), array));
    npz::write(old, pairs, npz::Packing::Stored).expect("written");
    let mut other = Trainer::new(&model).expect("a trainer");
    other.load(files.path("old.npz")).expect("loaded");
    assert_eq!(bits(&other), bits(&trainer));
    assert_eq!(other.data_position(), sardonyx::train::DataPosition::default());
}

/// Checks that loading a state with the stored values leaves the encoding of the initializers
/// unchanged.
#[test]
fn values_that_did_not_change_stay_as_they_are_stored() {
    let files = Files::new();
    let model = model(DESCENT);
    let trainer = Trainer::new(&model).expect("a trainer");
    trainer.save(files.path("state.npz")).expect("saved");
    let mut other = Trainer::new(&model).expect("a trainer");
    other.load(files.path("state.npz")).expect("loaded");
    assert_eq!(other.export().expect("an export").to_bytes(), model.to_bytes());
    other.step(0, descent_data(), &RunOptions::default()).expect("a step");
    assert_ne!(other.export().expect("an export").to_bytes(), model.to_bytes());
}

/// Checks that a file which is not a state of the model is refused, and leaves the state unchanged.
#[test]
fn a_state_of_another_model_is_refused() {
    let files = Files::new();
    let mut trainer = trainer(DESCENT);
    trainer.step(0, descent_data(), &RunOptions::default()).expect("a step");
    let before = bits(&trainer);
    let other = self::trainer(ADD_AND_DOUBLE);
    for name in ["other.npz", "other.safetensors"] {
        other.save(files.path(name)).expect("saved");
        let error = trainer.load(files.path(name)).expect_err("another model");
        assert!(error.message().contains("holds the state of another model"), "{error}");
    }
    let plain = fs::File::create(files.path("plain.npz")).expect("a file");
    npz::write(plain, [("w", &vector(&[1.0, 2.0]))], npz::Packing::Stored).expect("written");
    let error = trainer.load(files.path("plain.npz")).expect_err("it does not say of which model");
    assert!(error.message().contains("it is not a saved state"), "{error}");
    let mut plain = fs::File::create(files.path("plain.safetensors")).expect("a file");
    let tensors = [("w", &vector(&[1.0, 2.0]))];
    safetensors::write(&mut plain, tensors, []).expect("written");
    let error = trainer.load(files.path("plain.safetensors")).expect_err("no saved state");
    assert!(error.message().contains("it is not a saved state"), "{error}");
    fs::write(files.path("damaged.npz"), b"PK").expect("written");
    assert_eq!(
        trainer.load(files.path("damaged.npz")).expect_err("damaged").kind(),
        ErrorKind::Format
    );
    assert_eq!(trainer.load(files.path("none.npz")).expect_err("missing").kind(), ErrorKind::Io);
    assert_eq!(bits(&trainer), before);
}

/// Checks that sessions of exported models share packed weights only if the weights have equal
/// bytes: a later step, which overwrites them in place, must not change earlier sessions.
#[test]
fn sessions_of_exports_have_the_weights_of_their_time() {
    let text = "<ir_version: 10, opset_import: [\"\": 21]>
                g (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> { y = MatMul (x, w) }";
    let options = TrainingOptions::new(Loss::SquaredError { output: None });
    let options = options.optimizer(OptimizerKind::Sgd, 0.1);
    let (model, _) =
        Model::from_text(text).expect("a model").add_training(&options).expect("training");
    let mut trainer = Trainer::new(&model).expect("a trainer");
    let data = [("x", row(&[1.0, 2.0])), ("target", row(&[0.0, 1.0]))];
    let mut sessions = Vec::new();
    for _ in 0..3 {
        trainer.step(0, data.clone(), &RunOptions::default()).expect("a step");
        let session = Session::new(&trainer.export_inference().expect("a model")).expect("it runs");
        sessions.push((
            session,
            trainer.infer([("x", row(&[1.0, 2.0]))], &RunOptions::default()).expect("inference"),
        ));
    }
    for (session, expected) in &sessions {
        let found = session.run([("x", row(&[1.0, 2.0]))], &RunOptions::default()).expect("a run");
        assert_eq!(output(&found, "y"), output(expected, "y"));
    }
    let distinct = sessions.iter().map(|(_, outputs)| output(outputs, "y"));
    let distinct: Vec<Vec<f32>> = distinct.collect();
    assert!(distinct[0] != distinct[1] && distinct[1] != distinct[2], "{distinct:?}");
}

fn row(elements: &[f32]) -> Tensor {
    Tensor::from_slice([1, elements.len()], elements).expect("a row")
}
