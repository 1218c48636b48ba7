//! Tests that a crash at any step of a save leaves a complete model.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sardonyx_tensor::Tensor;

use super::{Layout, SaveOptions, Weights};
use crate::Model;

/// Makes a model with three tensors of different sizes, filled from `seed`.
fn make_model(seed: u8) -> Model {
    let mut model = Model::from_bytes(b"\x08\x0a\x3a\x03\x12\x01g".to_vec()).unwrap();
    let main = model.graph.main.unwrap();
    for (index, len) in [5000usize, 100, 70_000].into_iter().enumerate() {
        let values = vec![seed.wrapping_add(index as u8); len];
        let tensor = Tensor::from_vec([len], values).unwrap();
        model.graph.add_initializer(main, "w", &tensor);
    }
    model
}

/// Returns options that move all tensors to data files and replace old data files.
fn make_external_options() -> SaveOptions {
    SaveOptions::new().weights(Weights::Outside).replace(true)
}

/// Reads all files of a directory, by name.
fn read_directory(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Reads the bytes of all tensors of a model file.
fn read_tensor_bytes(path: &Path) -> Result<Vec<Vec<u8>>, crate::Error> {
    let model = Model::open(path)?;
    let tensors = model.tensors();
    let values = tensors.iter().map(|tensor| {
        let value = model.value_of(tensor)?;
        Ok(value.buffer().unwrap().as_slice().to_vec())
    });
    values.collect()
}

/// Returns options with a hook that fails at the step with index `end` and all later ones, as if
/// the process had been killed, and the counter of steps. Clean-up is a step too.
fn fail_from_step(options: &SaveOptions, end: usize) -> (SaveOptions, Arc<AtomicUsize>) {
    let steps = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&steps);
    let mut options = options.clone();
    options.before_step = Some(Arc::new(move |_: &str| {
        if counter.fetch_add(1, Ordering::Relaxed) >= end {
            Err(io::Error::other("simulated crash"))
        } else {
            Ok(())
        }
    }));
    (options, steps)
}

#[test]
fn a_crash_leaves_the_old_model_or_the_new_one() {
    let layouts = [
        make_external_options(),
        make_external_options().sync(true).checksum(true),
        make_external_options().layout(Layout::PerTensor),
        make_external_options().layout(Layout::Shards(71_000)),
        SaveOptions::new().weights(Weights::Inside).replace(true),
    ];
    let (old, new) = (make_model(1), make_model(100));
    for before in &layouts {
        for after in &layouts {
            let mut ended = true;
            let mut end = 0;
            while ended {
                ended = save_with_crash(&old, &new, before, after, end);
                end += 1;
            }
            assert!(end > 4, "only {end} steps were tried");
        }
    }
}

/// Saves `old`, then saves `new` over it and fails from step `end` on. Returns whether the second
/// save failed.
fn save_with_crash(
    old: &Model,
    new: &Model,
    before: &SaveOptions,
    after: &SaveOptions,
    end: usize,
) -> bool {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("model.onnx");
    fs::write(scratch.path().join("bystander.bin"), b"mine").unwrap();
    before.save(old, &path).unwrap();
    let files_before = read_directory(scratch.path());
    let (options, _) = fail_from_step(after, end);
    let ended = options.save(new, &path).is_err();
    let found = read_tensor_bytes(&path).unwrap();
    assert!(
        found == make_initial_bytes(1) || found == make_initial_bytes(100),
        "step {end}: the file holds neither the old model nor the new one"
    );
    if ended && found == make_initial_bytes(1) {
        // All files of the old model must be unchanged.
        let now = read_directory(scratch.path());
        for (name, bytes) in &files_before {
            assert!(now.get(name) == Some(bytes), "step {end}: {name} changed");
        }
    }
    // Whatever the crash left, the next save must leave the same files as in a fresh directory.
    after.save(new, &path).unwrap();
    assert_eq!(read_tensor_bytes(&path).unwrap(), make_initial_bytes(100));
    let names: Vec<String> = read_directory(scratch.path()).into_keys().collect();
    let model = Model::open(&path).unwrap();
    let used: Vec<String> = model.external_files().into_iter().map(|file| file.location).collect();
    for name in &names {
        let belongs =
            ["bystander.bin", "model.onnx"].contains(&name.as_str()) || used.contains(name);
        assert!(belongs, "step {end}: {name} was not removed; all files: {names:?}");
    }
    ended
}

/// Returns the bytes of the tensors of the model with `seed`.
fn make_initial_bytes(seed: u8) -> Vec<Vec<u8>> {
    let lens = [5000usize, 100, 70_000].into_iter().enumerate();
    lens.map(|(index, len)| vec![seed.wrapping_add(index as u8); len]).collect()
}

/// Checks that saving another model in the directory removes the temporary files of a crash.
#[test]
fn a_save_of_another_model_cleans_up_too() {
    let (old, new) = (make_model(1), make_model(100));
    let mut end = 0;
    loop {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("model.onnx");
        make_external_options().save(&old, &path).unwrap();
        let (options, _) = fail_from_step(&make_external_options(), end);
        let ended = options.save(&new, &path).is_err();
        let before = read_tensor_bytes(&path).unwrap();
        let other = scratch.path().join("other.onnx");
        SaveOptions::new().weights(Weights::Inside).save(&old, &other).unwrap();
        assert_eq!(read_tensor_bytes(&path).unwrap(), before, "step {end}");
        let used = Model::open(&path).unwrap().external_files()[0].location.clone();
        let mut expected = ["model.onnx", used.as_str(), "other.onnx"];
        expected.sort_unstable();
        let names: Vec<String> = read_directory(scratch.path()).into_keys().collect();
        assert_eq!(names, expected, "step {end}");
        if !ended {
            break;
        }
        end += 1;
    }
    assert!(end > 4, "only {end} steps were tried");
}

#[test]
fn one_data_file_at_most_is_left_behind() {
    let (old, new) = (make_model(1), make_model(100));
    let mut end = 0;
    loop {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("model.onnx");
        make_external_options().save(&old, &path).unwrap();
        let (options, _) = fail_from_step(&make_external_options(), end);
        let ended = options.save(&new, &path).is_err();
        let model = Model::open(&path).unwrap();
        let used = model.external_files()[0].location.clone();
        let names = read_directory(scratch.path()).into_keys();
        let orphans: Vec<String> =
            names.filter(|name| name.ends_with(".data") && *name != used).collect();
        assert!(orphans.len() <= 1, "step {end}: {orphans:?}");
        if !ended {
            break;
        }
        end += 1;
    }
}

#[test]
fn a_note_of_another_program_removes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("model.onnx");
    fs::write(scratch.path().join("precious"), b"x").unwrap();
    let lines = "0 0 precious\n1 2 ../outside\nnonsense\n\n9 9\n";
    for name in [".model.onnx.replacing", ".other.onnx.replacing", ".empty.replacing"] {
        fs::write(scratch.path().join(name), if name == ".empty.replacing" { "" } else { lines })
            .unwrap();
    }
    make_external_options().save(&make_model(1), &path).unwrap();
    let names: Vec<String> = read_directory(scratch.path()).into_keys().collect();
    let expected =
        [".empty.replacing", ".other.onnx.replacing", "model.onnx", "model.onnx.data", "precious"];
    assert_eq!(names, expected);
}
