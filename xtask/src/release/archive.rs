//! The archive of the command: the static binary with completions, manual pages, licences and the
//! list of crates, and the file that makes a container image of it.

use crate::release::Plan;
use crate::static_build::TARGET;
use crate::workspace::root;
use crate::{Result, shell};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Shells with completions, and the names under which they look for them.
const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "sardonyx.bash"),
    ("zsh", "_sardonyx"),
    ("fish", "sardonyx.fish"),
    ("powershell", "_sardonyx.ps1"),
    ("elvish", "sardonyx.elv"),
];

/// Files of the repository that the archive has.
const DOCUMENTS: &[&str] =
    &["README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Returns the name of the archive's only directory, and of the archive without its suffix.
pub(crate) fn archive_name(version: &str) -> String {
    format!("sardonyx-{version}-{TARGET}")
}

/// Packs the archive into the directory of the release.
pub(crate) fn pack(plan: &Plan, binary: &Path, sbom: &str, notices: &str) -> Result {
    let name = archive_name(&plan.version);
    let work = plan.work("archive")?;
    let tree = work.join(&name);
    fs::create_dir_all(tree.join("completions"))?;
    fs::copy(binary, tree.join("sardonyx"))?;
    for document in DOCUMENTS {
        fs::copy(root().join(document), tree.join(document))
            .map_err(|error| format!("{document}: {error}"))?;
    }
    fs::write(tree.join("NOTICES.txt"), notices)?;
    fs::write(tree.join("sardonyx.cdx.json"), sbom)?;
    for (shell, file) in COMPLETIONS {
        let script = shell::output(Command::new(binary).args(["completions", shell]))?;
        fs::write(tree.join("completions").join(file), script)?;
    }
    shell::run(Command::new(binary).arg("man").arg("--output").arg(tree.join("man/man1")))?;
    let archive = plan.directory.join(format!("{name}.tar.xz"));
    // Order, owners, modes and times are fixed, so that the same files are the same bytes.
    shell::run(
        Command::new("tar")
            .args(["--create", "--file"])
            .arg(&archive)
            .args(["--use-compress-program", "xz -9e --threads=1"])
            .args(["--format", "gnu", "--sort", "name", "--owner", "0", "--group", "0"])
            .args(["--numeric-owner", "--mode", "u=rwX,go=rX"])
            .arg(format!("--mtime=@{}", plan.time))
            .arg("--directory")
            .arg(&work)
            .arg(&name),
    )
    .map_err(|error| format!("{error}; GNU tar and xz are needed"))?;
    fs::write(plan.directory.join("Containerfile"), render_containerfile(&plan.version))?;
    Ok(())
}

/// Renders the instructions for an image that has the archive's files and nothing else.
fn render_containerfile(version: &str) -> String {
    let name = archive_name(version);
    format!(
        "# Image with nothing but the command: docker build --tag sardonyx --file Containerfile .\n\
         # docker run --rm --volume \"$PWD:/models\" sardonyx check model.onnx\n\
         FROM scratch\n\
         LABEL org.opencontainers.image.title=\"sardonyx\" \\\n      \
         org.opencontainers.image.version=\"{version}\" \\\n      \
         org.opencontainers.image.licenses=\"MIT OR Apache-2.0\"\n\
         # Unpacks the archive.\n\
         ADD {name}.tar.xz /\n\
         WORKDIR /models\n\
         USER 1000:1000\n\
         ENTRYPOINT [\"/{name}/sardonyx\"]\n"
    )
}

/// Replaces the variables of a template of `cargo binstall`, but for the repository.
fn expand_template(template: &str, version: &str) -> String {
    let values = [
        ("{ version }", version),
        ("{ target }", TARGET),
        ("{ bin }", "sardonyx"),
        ("{ binary-ext }", ""),
    ];
    values.iter().fold(template.to_string(), |text, (name, value)| text.replace(name, value))
}

/// Checks that `cargo binstall` finds the archive and the program in it, by the templates in the
/// manifest of the command.
pub(crate) fn check_binstall(metadata: &serde_json::Value, version: &str) -> Vec<String> {
    let name = archive_name(version);
    let mut findings = Vec::new();
    let url = format!("{{ repo }}/releases/download/v{version}/{name}.tar.xz");
    for (key, wanted) in
        [("pkg-url", url), ("bin-dir", format!("{name}/sardonyx")), ("pkg-fmt", "txz".to_string())]
    {
        let found = expand_template(metadata[key].as_str().unwrap_or_default(), version);
        if found != wanted {
            findings.push(format!(
                "crates/cli/Cargo.toml: metadata.binstall.{key} leads to {found:?}, expected {wanted:?}"
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::packages;

    #[test]
    fn binstall_finds_the_archive() {
        let packages = packages().unwrap();
        let command = packages.iter().find(|package| package["name"] == "sardonyx-cli").unwrap();
        let metadata = &command["metadata"]["binstall"];
        assert_eq!(check_binstall(metadata, "1.2.3"), Vec::<String>::new());
        let mut wrong = metadata.clone();
        wrong["bin-dir"] = "{ bin }".into();
        assert_eq!(check_binstall(&wrong, "1.2.3").len(), 1);
    }

    #[test]
    fn an_image_has_the_files_of_the_archive() {
        let file = render_containerfile("1.2.3");
        assert!(file.contains("\nFROM scratch\n"));
        assert!(file.contains("\nADD sardonyx-1.2.3-x86_64-unknown-linux-gnu.tar.xz /\n"));
        assert!(file.contains("[\"/sardonyx-1.2.3-x86_64-unknown-linux-gnu/sardonyx\"]"));
    }
}
