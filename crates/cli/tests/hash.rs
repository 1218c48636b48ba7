//! `sardonyx hash`.

use crate::support::{
    Files, digits, digits_model, sardonyx, sardonyx_with_stdin, with_external_data,
};

#[test]
fn hashes_do_not_depend_on_the_storage_of_values() {
    let files = Files::new(&[("d.onnx", std::fs::read(digits_model()).unwrap())]);
    let of = |name: &str| files.run("hash", name, &[]).good();
    let first = of("d.onnx");
    assert!(first.ends_with(&format!("  {}\n", files.path("d.onnx"))), "{first}");
    assert!(first[..64].bytes().all(|byte| byte.is_ascii_hexdigit()));
    files.run("externalize", "d.onnx", &["--in-place", "--per-tensor"]).good();
    assert_eq!(of("d.onnx"), first);
    files.run("set", "d.onnx", &["--in-place", "--domain", "x"]).good();
    assert_ne!(of("d.onnx"), first);
    let piped = sardonyx_with_stdin(&["hash", "-"], &digits().join("digits.onnx")).good();
    assert_eq!(piped, format!("{}  -\n", &first[..64]));
}

#[test]
fn several_files_and_failures() {
    let files = Files::new(&[
        ("d.onnx", std::fs::read(digits_model()).unwrap()),
        ("m.onnx", with_external_data("absent.bin")),
    ]);
    let (digits, missing, absent) =
        (files.path("d.onnx"), files.path("m.onnx"), files.path("x.onnx"));
    let answer = sardonyx(&["hash", "--json", &digits, &digits]);
    let json = answer.json("sardonyx.hash/1", &["hashes"]);
    assert_eq!(json["hashes"][0]["sha256"], json["hashes"][1]["sha256"]);
    assert_eq!(json["hashes"][1]["model"], digits);
    // Models that fail do not keep the others from being hashed.
    let answer = sardonyx(&["hash", &missing, &absent, &digits]);
    assert!(answer.stdout.ends_with(&format!("  {digits}\n")), "{}", answer.stdout);
    answer.fails_with(&["absent.bin", "m.onnx", "x.onnx", "no such file"]);
    assert_eq!(sardonyx(&["hash"]).code, Some(2));
}
