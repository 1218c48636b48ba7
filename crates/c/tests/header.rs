//! Writes `include/sardonyx.h` from the sources, and compares it with the committed one.
//!
//! `BLESS=1 cargo test -p sardonyx-c header` renews it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Files of the interface in the order of the header, with the heading of each part.
const PARTS: [(&str, &str); 6] = [
    ("error.rs", "Errors"),
    ("lib.rs", "The library, and what it allocates"),
    ("model.rs", "Models"),
    ("report.rs", "Checks"),
    ("tensor.rs", "Tensors"),
    ("session.rs", "Sessions"),
];

/// Types of C by their names in the sources.
const NUMBERS: [(&str, &str); 8] = [
    ("c_char", "char"),
    ("c_int", "int"),
    ("c_void", "void"),
    ("u8", "uint8_t"),
    ("u32", "uint32_t"),
    ("i64", "int64_t"),
    ("usize", "size_t"),
    ("bool", "bool"),
];

const START: &str = "\
/* Sardonyx for C and C++: ONNX models opened, checked, converted, simplified and run.
 *
 * A function that can fail returns a null pointer for success, else an error that the caller frees with sardonyx_error_free.
 * An object is freed by the function with its name, once. Functions may be called from any thread; an object is not changed or
 * freed while another thread uses it. Texts are UTF-8 and end with a zero byte.
 *
 * Written from the sources by the test `header` of the crate sardonyx-c.
 */
#ifndef SARDONYX_H
#define SARDONYX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif

/* Error of a call. */
typedef struct SardonyxError SardonyxError;
/* Model. */
typedef struct SardonyxModel SardonyxModel;
/* Findings of a check. */
typedef struct SardonyxReport SardonyxReport;
/* Model that is prepared to run. Several threads may use it at the same time. */
typedef struct SardonyxSession SardonyxSession;
/* Tensor. It is never changed, so several threads may read it. */
typedef struct SardonyxTensor SardonyxTensor;
/* Array of another library, as dlpack.h declares it. */
typedef struct DLManagedTensor DLManagedTensor;
";

const END: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// Converts a type of the sources to the type of C before a name.
fn to_c(ty: &str) -> String {
    let ty = ty.trim();
    for (start, is_const) in
        [("Ref<", true), ("Array<", true), ("Mut<", false), ("Owned<", false), ("Out<", false)]
    {
        if let Some(inner) = ty.strip_prefix(start).and_then(|rest| rest.strip_suffix('>')) {
            let constant = if is_const && !inner.starts_with("Ref<") && inner != "Text" {
                "const "
            } else {
                ""
            };
            // An array of pointers is constant itself.
            let pointer = if is_const && constant.is_empty() { "const *" } else { "*" };
            return format!("{constant}{}{pointer}", to_c(inner));
        }
    }
    if let Some(rest) = ty.strip_prefix("*mut ") {
        return format!("{}*", to_c(rest));
    }
    if let Some(rest) = ty.strip_prefix("*const ") {
        return format!("const {}*", to_c(rest));
    }
    match ty {
        "Text" => return "const char *".to_string(),
        "Bytes" => return "uint8_t *".to_string(),
        "DLManagedTensor" => return "DLManagedTensor ".to_string(),
        "Error" | "Model" | "Report" | "Session" | "Tensor" => return format!("Sardonyx{ty} "),
        _ => {}
    }
    let known = NUMBERS.iter().find(|(name, _)| *name == ty);
    format!("{} ", known.unwrap_or_else(|| panic!("no type of C is known for {ty}")).1)
}

/// Joins a type and a name as C writes them.
fn declare(ty: &str, name: &str) -> String {
    format!("{}{name}", to_c(ty))
}

/// Splits arguments at the commas that are in no angle brackets.
fn split(arguments: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, character) in arguments.char_indices() {
        match character {
            '<' => depth += 1,
            '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(arguments[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(arguments[start..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

/// Declares a function, `sardonyx_name(arguments) -> result`.
fn declare_function(signature: &str) -> String {
    let (name, rest) = signature.split_once('(').unwrap();
    let (arguments, result) = rest.rsplit_once(')').unwrap();
    let arguments: Vec<String> = split(arguments)
        .into_iter()
        .map(|argument| {
            let (name, ty) = argument.split_once(':').unwrap();
            declare(ty, name.trim().trim_start_matches("mut "))
        })
        .collect();
    let arguments = if arguments.is_empty() { "void".to_string() } else { arguments.join(", ") };
    let result = result.trim().strip_prefix("->").map_or("void ".to_string(), to_c);
    format!("{result}{name}({arguments});")
}

/// Evaluates a constant: a number, or the number of an element type.
fn evaluate(text: &str) -> i32 {
    let name = text.strip_prefix("DataType::").and_then(|text| text.strip_suffix(".number()"));
    match name {
        Some(name) => {
            let lower = name.to_lowercase();
            sardonyx::DataType::from_name(lower).unwrap().number()
        }
        None => text.parse().unwrap(),
    }
}

/// Writes the header.
fn write_header() -> String {
    let mut header = START.to_string();
    for (file, heading) in PARTS {
        let source = std::fs::read_to_string(directory().join("src").join(file)).unwrap();
        writeln!(header, "\n/* ---- {heading} ---- */").unwrap();
        let (mut comment, mut lines) = (Vec::new(), source.lines());
        while let Some(line) = lines.next() {
            if let Some(text) = line.strip_prefix("///") {
                comment.push(text.trim().replace('`', ""));
            } else if let Some(rest) = line.strip_prefix("pub(crate) const SARDONYX_") {
                let (name, value) = rest.split_once(": c_int = ").unwrap();
                let value = evaluate(value.trim_end_matches(';'));
                writeln!(header, "/* {} */", comment.join(" ")).unwrap();
                writeln!(header, "#define SARDONYX_{name} {value}").unwrap();
                comment.clear();
            } else if let Some(rest) = line.strip_prefix("extern \"C\" fn ") {
                let mut signature = rest.to_string();
                while !signature.ends_with('{') {
                    signature.push(' ');
                    signature.push_str(lines.next().unwrap().trim());
                }
                let signature = signature.trim_end_matches('{').trim();
                let comment = std::mem::take(&mut comment).join("\n * ");
                writeln!(header, "\n/* {comment} */\n{}", declare_function(signature)).unwrap();
            } else if !line.starts_with("#[") {
                comment.clear();
            }
        }
    }
    header + END
}

#[test]
fn header_is_that_of_the_sources() {
    let path = directory().join("include/sardonyx.h");
    let header = write_header();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &header).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == header,
        "include/sardonyx.h is stale: run BLESS=1 cargo test -p sardonyx-c header"
    );
}

#[test]
fn types_of_c() {
    for (ty, expected) in [
        ("Ref<Model>", "const SardonyxModel *x"),
        ("Out<*mut Model>", "SardonyxModel **x"),
        ("Array<Text>", "const char *const *x"),
        ("Array<Ref<Tensor>>", "const SardonyxTensor *const *x"),
        ("Owned<c_char>", "char *x"),
        ("usize", "size_t x"),
    ] {
        assert_eq!(declare(ty, "x"), expected);
    }
    assert_eq!(
        declare_function("sardonyx_f(mut model: Mut<Model>, key: Text) -> *mut Error"),
        "SardonyxError *sardonyx_f(SardonyxModel *model, const char *key);"
    );
    assert_eq!(declare_function("sardonyx_f() -> c_int"), "int sardonyx_f(void);");
}
