//! Notices of dependencies: the licence texts that programs with these crates in them must carry.

use crate::Result;
use crate::dependencies::{Dependencies, Package};
use crate::release::sbom::Library;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Beginnings of the names of files that hold licences.
const NAMES: &[&str] = &["license", "licence", "copying", "copyright", "notice", "unlicense"];

/// Renders the notices of the crates that are linked into products, each text once.
pub(crate) fn render_notices(
    products: &[&Dependencies],
    libraries: &[Library],
    library_texts: &Path,
) -> Result<String> {
    let mut packages: BTreeMap<(&str, &str), &Package> = BTreeMap::new();
    for package in products.iter().flat_map(|product| product.foreign()) {
        if !package.is_build_only {
            packages.insert((&package.name, &package.version), package);
        }
    }
    let mut text =
        "Sardonyx is licensed under MIT or Apache-2.0, at your choice. Its programs contain the \
                    software below.\n\n"
            .to_string();
    let mut users: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.values() {
        let name = format!("{} {}", package.name, package.version);
        text += &format!("{name}: {}", package.license);
        text += &package.repository.as_ref().map_or("\n".into(), |url| format!(", {url}\n"));
        for license in read_licenses(package)? {
            users.entry(license).or_default().push(name.clone());
        }
    }
    text += "The standard library of Rust: MIT OR Apache-2.0, https://www.rust-lang.org\n";
    for library in libraries {
        text += &format!(
            "{} {}: {}, {}\n",
            library.name, library.version, library.license, library.url
        );
        text += "  The command is linked with it statically. Its own source is public, so that it can be linked \
                 with another version of the library: `cargo xtask release` in the repository does it.\n";
        let file = library_texts.join(library.license.trim_end_matches("-or-later"));
        let license = fs::read_to_string(&file).map_err(|error| {
            format!("the licence of {}: {}: {error}", library.name, file.display())
        })?;
        users.entry(license).or_default().push(format!("{} {}", library.name, library.version));
    }
    let mut sections: Vec<(Vec<String>, String)> =
        users.into_iter().map(|(license, users)| (users, license)).collect();
    sections.sort();
    for (users, license) in sections {
        text += &format!("\n{}\n{}\n\n{}\n", "-".repeat(80), users.join(", "), license.trim_end());
    }
    Ok(text)
}

/// Reads the licence texts inside a package, without differences in white space at line ends.
fn read_licenses(package: &Package) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    for entry in fs::read_dir(&package.directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if entry.file_type()?.is_file() && NAMES.iter().any(|start| name.starts_with(start)) {
            let text = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
            texts.push(text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n"));
        }
    }
    if texts.is_empty() {
        let Package { name, version, .. } = package;
        return Err(format!("{name} {version}: the package has no licence text").into());
    }
    texts.sort();
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_packages_share_stands_once() {
        let directory =
            std::env::temp_dir().join(format!("sardonyx-notices-{}", std::process::id()));
        let mut packages = Vec::new();
        for (name, text) in [("a", "Permitted."), ("b", "Permitted.  \n"), ("bare", "")] {
            let own = directory.join(name);
            fs::create_dir_all(&own).unwrap();
            if !text.is_empty() {
                fs::write(own.join("LICENSE-MIT"), text).unwrap();
            }
            packages.push(Package { directory: own, ..Package::sample(name, "MIT", &[]) });
        }
        let bare = packages.pop().unwrap();
        packages.push(Package { is_build_only: true, ..Package::sample("macros", "MIT", &[]) });
        let complete = Dependencies { packages, product: 0 };
        let text = render_notices(&[&complete], &[], &directory).unwrap();
        let without = Dependencies { packages: vec![bare], product: 0 };
        let refused = render_notices(&[&without], &[], &directory).unwrap_err().to_string();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(text.matches("Permitted.").count(), 1);
        assert!(text.contains("\na 1.0.0, b 1.0.0\n\nPermitted.\n"), "{text}");
        assert!(!text.contains("macros"));
        assert_eq!(refused, "bare 1.0.0: the package has no licence text");
    }
}
