//! Tests of saving models with their values inside the file and in data files.

// In a test, a panic is the report.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use sardonyx::inspect::TensorStorage;
use sardonyx::io::{Access, ExternalFiles, Layout, SaveReport, Weights};
use sardonyx::value::Buffer;
use sardonyx::{Model, OpenOptions, SaveOptions};

const DIGITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");

fn external_options() -> SaveOptions {
    SaveOptions::new().weights(Weights::Outside)
}

fn embedded_options() -> SaveOptions {
    SaveOptions::new().weights(Weights::Inside)
}

fn content(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

fn names(directory: &Path) -> Vec<String> {
    content(directory).into_keys().collect()
}

#[test]
fn readers_of_31_bits_read_up_to_their_largest_number() {
    // EXT-23, WIRE-31-
    for (bytes, exceeds) in
        [(0, false), ((1 << 31) - 1, false), (1 << 31, true), (1 << 32, true), (u64::MAX, true)]
    {
        let mut report = SaveReport::default();
        report.bytes = bytes;
        assert_eq!(report.exceeds_2_gib(), exceeds, "{bytes}");
    }
}

#[test]
fn outside_and_inside_again_gives_the_original_bytes() {
    // EXT-01+, EXT-06, EXT-12-, EXT-19+, EXT-20, EXT-24+
    let original = fs::read(DIGITS).unwrap();
    let model = Model::open(DIGITS).unwrap();
    let hash = model.content_hash().unwrap();
    // Options, and the minimum number of data files.
    let cases = [
        (external_options(), 1),
        (external_options().threshold(0), 1),
        (external_options().threshold(0).alignment(1), 1),
        (external_options().layout(Layout::PerTensor).checksum(true), 2),
        (external_options().layout(Layout::Shards(40_000)), 2),
    ];
    for (options, files) in cases {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("digits.onnx");
        let report = options.save(&model, &path).unwrap();
        assert!(report.files.len() >= files, "{report:?}");
        // EXT-24-: no tensor is split over two files.
        for tensor in Model::open(&path).unwrap().tensors() {
            if let TensorStorage::External { location, offset, length, .. } = &tensor.storage {
                let size = fs::metadata(scratch.path().join(location)).unwrap().len();
                assert!(offset + length.unwrap() <= size, "{}", tensor.name);
            }
        }
        let checked = OpenOptions::new().verify_checksums(true);
        let moved = checked.external(ExternalFiles::Now).open(&path).unwrap();
        assert_eq!(moved.content_hash().unwrap(), hash);
        let first = content(scratch.path());
        // Saving the model again, from either file, changes nothing.
        for same in [&model, &moved] {
            let report = options.save(same, &path).unwrap();
            assert!(report.files.iter().all(|file| file.reused), "{report:?}");
            assert!(content(scratch.path()) == first);
        }
        // Mapped files are replaced and removed while they are in use.
        let report = embedded_options().save(&moved, &path).unwrap();
        assert_eq!(report.removed.len(), first.len() - 1);
        assert_eq!(names(scratch.path()), ["digits.onnx"]);
        assert!(fs::read(&path).unwrap() == original);
    }
}

#[test]
fn offsets_are_aligned_and_small_tensors_packed_tighter() {
    // EXT-12+
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.onnx");
    let model = Model::open(DIGITS).unwrap();
    external_options().threshold(0).save(&model, &path).unwrap();
    let moved = Model::open(&path).unwrap();
    for tensor in moved.tensors() {
        if let TensorStorage::External { offset, length, .. } = tensor.storage {
            let is_large = length.unwrap() >= 65_536;
            let alignment = if is_large { 65_536 } else { 4096 };
            assert!(offset.is_multiple_of(alignment), "{}", tensor.name);
        }
    }
}

#[test]
fn data_comes_along_to_another_directory() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let model = Model::open(DIGITS).unwrap();
    external_options().save(&model, here.path().join("m.onnx")).unwrap();
    for access in [Access::Map, Access::Read] {
        let options = OpenOptions::new().access(access);
        let moved = options.open(here.path().join("m.onnx")).unwrap();
        moved.save(there.path().join("copy.onnx")).unwrap();
        assert_eq!(names(there.path()), ["copy.onnx", "copy.onnx.data"]);
        let copy = Model::open(there.path().join("copy.onnx")).unwrap();
        assert_eq!(copy.content_hash().unwrap(), model.content_hash().unwrap());
        // In the directory of its data files, no value is copied.
        moved.save(here.path().join("second.onnx")).unwrap();
        assert_eq!(names(here.path()), ["m.onnx", "m.onnx.data", "second.onnx"]);
    }
}

#[test]
fn data_files_of_other_models_stay() {
    let scratch = tempfile::tempdir().unwrap();
    let (first, second) = (scratch.path().join("a.onnx"), scratch.path().join("b.onnx"));
    let model = Model::open(DIGITS).unwrap();
    external_options().save(&model, &first).unwrap();
    Model::open(&first).unwrap().save(&second).unwrap();
    let report = embedded_options().replace(true).save(&model, &first).unwrap();
    assert!(report.removed.is_empty());
    assert_eq!(report.shared, ["a.onnx.data"]);
    let shared = Model::open(&second).unwrap();
    let hash = shared.content_hash().unwrap();
    assert_eq!(hash, model.content_hash().unwrap());
    // The last model that uses the data file removes it.
    let report = embedded_options().save(&shared, &second).unwrap();
    assert_eq!(report.removed, ["a.onnx.data"]);
    assert_eq!(names(scratch.path()), ["a.onnx", "b.onnx"]);
}

#[test]
fn files_in_the_way_are_not_overwritten() {
    // EXT-20-
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.onnx");
    let data = scratch.path().join("m.onnx.data");
    fs::write(&data, b"mine").unwrap();
    let model = Model::open(DIGITS).unwrap();
    let location = |options: SaveOptions| {
        let report = options.save(&model, &path).unwrap();
        report.files[0].location.clone()
    };
    assert_eq!(location(external_options()), "m-2.onnx.data");
    assert_eq!(fs::read(&data).unwrap(), b"mine");
    let named = external_options().threshold(0).data_name("sub/w.bin");
    assert_eq!(location(named.clone()), "sub/w.bin");
    assert_eq!(location(named), "sub/w.bin", "the same again changes nothing");
    assert_eq!(names(&scratch.path().join("sub")), ["w.bin"]);
    for name in ["../w.bin", "/tmp/w.bin", "", "a\\..\\b", "C:w"] {
        let error = external_options().data_name(name).save(&model, &path).unwrap_err();
        assert!(error.to_string().contains("location"), "{name}: {error}");
    }
}

#[cfg(unix)]
#[test]
fn the_cache_of_hugging_face_loads_and_a_save_replaces_the_links() {
    // EXT-11 with its exception
    use std::os::unix::fs::symlink;
    let scratch = tempfile::tempdir().unwrap();
    let blobs = scratch.path().join("blobs");
    let snapshot = scratch.path().join("snapshots/1/onnx");
    fs::create_dir_all(&blobs).unwrap();
    fs::create_dir_all(&snapshot).unwrap();
    let model = Model::open(DIGITS).unwrap();
    let hash = model.content_hash().unwrap();
    external_options().save(&model, blobs.join("model.onnx")).unwrap();
    for (name, blob) in [("model.onnx", "aaaa"), ("model.onnx.data", "bbbb")] {
        fs::rename(blobs.join(name), blobs.join(blob)).unwrap();
        symlink(format!("../../../blobs/{blob}"), snapshot.join(name)).unwrap();
    }
    let path = snapshot.join("model.onnx");
    let cached = Model::open(&path).unwrap();
    assert_eq!(cached.content_hash().unwrap(), hash);
    let strict = OpenOptions::new().follow_links(false);
    let error = strict.open(&path).unwrap().content_hash().unwrap_err();
    assert!(error.to_string().contains("links are not followed"), "{error}");
    let before = content(&blobs);
    embedded_options().save(&cached, &path).unwrap();
    assert_eq!(names(&snapshot), ["model.onnx"]);
    assert!(content(&blobs) == before, "the blobs belong to others too");
    assert!(fs::read(&path).unwrap() == fs::read(DIGITS).unwrap());
}

#[test]
fn data_files_come_from_a_resolver() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.onnx");
    let model = Model::open(DIGITS).unwrap();
    external_options().save(&model, &path).unwrap();
    let file = |name: &str| fs::read(scratch.path().join(name)).unwrap();
    let with = |files: HashMap<String, Buffer>| {
        let options = OpenOptions::new().resolver(Arc::new(files));
        options.from_bytes(file("m.onnx")).unwrap().content_hash()
    };
    let data = Buffer::from_vec(file("m.onnx.data"));
    let found = with(HashMap::from([("m.onnx.data".to_string(), data)]));
    assert_eq!(found.unwrap(), model.content_hash().unwrap());
    let error = with(HashMap::new()).unwrap_err();
    assert!(error.to_string().contains("no such file"), "{error}");
    let never = OpenOptions::new().external(ExternalFiles::Never);
    let error = never.open(&path).unwrap().content_hash().unwrap_err();
    assert!(error.to_string().contains("without its data files"), "{error}");
}

#[test]
fn digests_are_written_and_compared_on_request() {
    // EXT-05
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.onnx");
    let model = Model::open(DIGITS).unwrap();
    external_options().checksum(true).save(&model, &path).unwrap();
    let now = OpenOptions::new().external(ExternalFiles::Now);
    let verify = now.clone().verify_checksums(true);
    verify.open(&path).unwrap();
    let data = scratch.path().join("m.onnx.data");
    let mut bytes = fs::read(&data).unwrap();
    bytes[10] ^= 1;
    fs::write(&data, bytes).unwrap();
    let error = verify.open(&path).unwrap_err();
    assert!(error.to_string().contains("SHA-1"), "{error}");
    now.open(&path).unwrap();
}

/// Makes a model with constants of these numbers of bytes.
fn model_with_constants(sizes: &[usize]) -> Model {
    let inputs: Vec<String> = (0..sizes.len()).map(|index| format!("w{index}")).collect();
    let constants = sizes.iter().zip(&inputs).map(|(size, name)| {
        let values: Vec<String> = (0..*size).map(|index| (index * 7 % 253).to_string()).collect();
        format!("uint8[{size}] {name} = raw {{{}}}", values.join(", "))
    });
    let text = format!(
        "<ir_version: 10, opset_import: [\"\": 21]>
         g () => (uint8[n] y) <{}> {{ y = Concat <axis = 0> ({}) }}",
        constants.collect::<Vec<_>>().join(", "),
        inputs.join(", ")
    );
    Model::from_text(&text).unwrap()
}

#[test]
fn long_values_of_mapped_files_are_saved_as_they_are() {
    // Shorter and longer than ranges that the system copies from file to file, and than a chunk.
    let model = model_with_constants(&[70_001, 10, 65_536, 65_535, 2_300_003]);
    let scratch = tempfile::tempdir().unwrap();
    let (path, other) = (scratch.path().join("m.onnx"), scratch.path().join("other.onnx"));
    for inside in [true, false] {
        let options = if inside { embedded_options() } else { external_options() };
        options.save(&model, &path).unwrap();
        let mapped = Model::open(&path).unwrap();
        let bytes = embedded_bytes(&mapped, scratch.path());
        assert_eq!(mapped.content_hash().unwrap(), model.content_hash().unwrap());
        assert_saves(&mapped, &other, &bytes);
        // Other bytes lie at the path of the mapped file by now.
        for name in ["m.onnx", "m.onnx.data"] {
            let path = scratch.path().join(name);
            if let Ok(found) = fs::metadata(&path) {
                fs::remove_file(&path).unwrap();
                fs::write(&path, vec![1; found.len() as usize]).unwrap();
            }
        }
        assert_saves(&mapped, &other, &bytes);
    }
}

/// Saves a model in each way, and compares the bytes that the saved model has with its values
/// inside.
fn assert_saves(model: &Model, target: &Path, bytes: &[u8]) {
    for options in [embedded_options(), external_options(), external_options().checksum(true)] {
        options.save(model, target).unwrap();
        let saved = OpenOptions::new().verify_checksums(true).open(target).unwrap();
        assert!(embedded_bytes(&saved, target.parent().unwrap()) == bytes);
    }
}

/// Returns the bytes of a model with its values inside, which reads them from memory.
fn embedded_bytes(model: &Model, scratch: &Path) -> Vec<u8> {
    let path = scratch.join("embedded.onnx");
    embedded_options().save(model, &path).unwrap();
    fs::read(path).unwrap()
}

#[test]
fn a_failed_save_changes_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("m.onnx");
    let model = Model::open(DIGITS).unwrap();
    external_options().save(&model, &path).unwrap();
    let moved = Model::open(&path).unwrap();
    fs::remove_file(scratch.path().join("m.onnx.data")).unwrap();
    let before = content(scratch.path());
    let error = embedded_options().save(&moved, &path).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    assert!(content(scratch.path()) == before);
    let error = model.save(scratch.path()).unwrap_err();
    assert!(error.to_string().contains("directory"), "{error}");
    assert!(model.save(scratch.path().join("none/m.onnx")).is_err());
    #[cfg(unix)]
    {
        let socket = scratch.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let error = model.save(&socket).unwrap_err();
        assert!(error.to_string().contains("socket"), "{error}");
        drop(listener);
    }
}

#[test]
fn bytes_that_are_read_can_be_limited() {
    let small = OpenOptions::new().access(Access::Read).max_bytes(1000);
    let endless = small.from_reader(std::io::repeat(0));
    for error in [small.open(DIGITS).unwrap_err(), endless.unwrap_err()] {
        assert!(error.to_string().contains("1000 bytes"), "{error}");
    }
}

#[test]
fn structure_can_be_read_without_payloads() {
    let whole = Model::open(DIGITS).unwrap();
    let skip = OpenOptions::new().skip_payloads(true);
    let bytes = fs::read(DIGITS).unwrap();
    let skimmed = [
        skip.clone().access(Access::Read).open(DIGITS).unwrap(),
        skip.from_reader(&*bytes).unwrap(),
    ];
    for model in skimmed {
        assert_eq!(sizes(&model), sizes(&whole));
        assert!(model.to_bytes().len() < bytes.len() / 4);
        let largest = model.tensors().into_iter().max_by_key(|tensor| tensor.bytes);
        let error = model.value_of(&largest.unwrap()).unwrap_err();
        assert!(error.to_string().contains("skipp"), "{error}");
        for error in [model.content_hash().unwrap_err(), model.save("x.onnx").unwrap_err()] {
            assert!(error.to_string().contains("skipp"), "{error}");
        }
    }
    // The stream ends inside a payload that is skipped.
    let error = skip.from_reader(&bytes[..bytes.len() / 2]).unwrap_err();
    assert!(error.to_string().contains("end"), "{error}");
}

type TensorSize = (String, Vec<i64>, Option<u64>, String);

fn sizes(model: &Model) -> Vec<TensorSize> {
    let tensors = model.tensors().into_iter();
    tensors.map(|t| (t.name, t.dims, t.bytes, t.place)).collect()
}
