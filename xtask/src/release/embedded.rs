//! The list of crates inside the command, which `cargo audit bin` and scanners of container images
//! read: the form of cargo-auditable.
//!
//! It is compressed JSON in the section `.dep-v0`. cargo-auditable itself wraps the compiler, so
//! that every crate would be built again for one product; here an object file with the section is
//! linked with the program. `cargo xtask release` reads it back with the reader of cargo-auditable.

use crate::dependencies::Dependencies;
use crate::{Result, shell};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Symbol that keeps the linker from removing the section.
pub(crate) const SYMBOL: &str = "SARDONYX_DEPENDENCIES";

/// Renders the list: packages refer to each other by their place in it.
pub(crate) fn render_list(dependencies: &Dependencies) -> Value {
    let packages = dependencies.packages.iter().enumerate().map(|(index, package)| {
        let source = if package.checksum.is_some() { "crates.io" } else { "local" };
        let mut entry =
            json!({ "name": package.name, "version": package.version, "source": source });
        if package.is_build_only {
            entry["kind"] = json!("build");
        }
        if !package.uses.is_empty() {
            entry["dependencies"] = json!(package.uses);
        }
        if index == dependencies.product {
            entry["root"] = json!(true);
        }
        entry
    });
    json!({ "packages": packages.collect::<Vec<_>>() })
}

/// Writes the object file, with binutils' objcopy.
pub(crate) fn write_object(dependencies: &Dependencies, object: &Path) -> Result {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(render_list(dependencies).to_string().as_bytes())?;
    let data = object.with_extension("zlib");
    fs::write(&data, encoder.finish()?)?;
    // objcopy makes the name of the symbol of the name of the file, as it was given.
    let directory = object.parent().ok_or("the object file has no directory")?;
    let [data, object] = [&data, object].map(|path| path.file_name().unwrap_or_default());
    let start = format!("_binary_{}_start", data.to_string_lossy().replace(['.', '-'], "_"));
    shell::run(
        Command::new("objcopy")
            .current_dir(directory)
            .args(["--input-target", "binary", "--output-target", "elf64-x86-64"])
            .args(["--binary-architecture", "i386:x86-64"])
            .args(["--rename-section", ".data=.dep-v0,alloc,load,readonly,data,contents"])
            .args(["--redefine-sym", &format!("{start}={SYMBOL}")])
            .args([data, object]),
    )
    .map_err(|error| format!("{error}; objcopy of GNU binutils is needed").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dependencies::Package;

    #[test]
    fn packages_refer_to_each_other_by_index() {
        let macros = Package { is_build_only: true, ..Package::sample("m", "MIT", &[]) };
        let product = Package { checksum: None, ..Package::sample("product", "MIT", &[0]) };
        let list = render_list(&Dependencies { packages: vec![macros, product], product: 1 });
        assert_eq!(
            list,
            json!({ "packages": [
                { "name": "m", "version": "1.0.0", "source": "crates.io", "kind": "build" },
                {
                    "name": "product", "version": "1.0.0", "source": "local",
                    "dependencies": [0], "root": true,
                },
            ] })
        );
    }
}
