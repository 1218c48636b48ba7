//! The page of a release, its checksums, and the commands that a maintainer runs.

use crate::Result;
use crate::release::preconditions::{find_section, find_unreleased};
use crate::release::{Plan, Results, archive, digest};
use crate::static_build::TARGET;
use crate::workspace::{readable_path, root};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Writes the page and the checksums, and prints the remaining steps.
pub(crate) fn write(plan: &Plan, results: &Results) -> Result {
    let changelog = fs::read_to_string(root().join("CHANGELOG.md"))?;
    let changes = find_section(&changelog, &plan.version).or_else(|| find_unreleased(&changelog));
    let changes = changes.ok_or("CHANGELOG.md has no section for the release")?;
    let page = render(plan, results, changes)?;
    fs::write(plan.directory.join("release-notes.md"), page)?;
    let files = list_files(&plan.directory)?;
    let sums = digest::list_digests(&plan.directory, &files)?;
    fs::write(plan.directory.join("SHA256SUMS"), &sums)?;
    let directory = readable_path(&plan.directory);
    println!("\n{directory}:");
    for file in &files {
        let size = fs::metadata(plan.directory.join(file))?.len();
        println!("{size:>12}  {file}");
    }
    println!("\nNothing was uploaded. A maintainer runs:\n");
    print!("{}", render_commands(&plan.version, &directory));
    Ok(())
}

fn render(plan: &Plan, results: &Results, changes: &str) -> Result<String> {
    let Plan { version, .. } = plan;
    let name = archive::archive_name(version);
    let mut page = format!(
        "# Sardonyx {version}\n\n## Install\n\n```sh\n\
         cargo add sardonyx@{version}             # the library\n\
         pip install sardonyx=={version}          # the Python package, for CPython 3.11 and newer\n\
         cargo binstall sardonyx-cli@{version}    # the command, for x86_64 Linux\n\
         ```\n\n\
         The archive `{name}.tar.xz` has the command as one static file, with completions and manual \
         pages; `sha256sum --check --ignore-missing SHA256SUMS` compares downloads.\n\n"
    );
    page += &format!("## Changes\n\n{changes}\n");
    if !results.trials.is_empty() {
        page += "\n## Tried\n\nIn a root directory with nothing but CPython, without a network:\n\n\
                 | seconds | step |\n| --- | --- |\n";
        for trial in &results.trials {
            writeln!(page, "| {:.2} | `{}` |", trial.time.as_secs_f64(), trial.what)?;
        }
    }
    if !results.reproduced.is_empty() {
        page += "\n## Reproduced\n\nTwo builds in different directories gave the same bytes:\n\n```text\n";
        for (name, digest) in &results.reproduced {
            writeln!(page, "{digest}  {name}")?;
        }
        page += "```\n";
    }
    if !results.crates.is_empty() {
        page += "\n## Crates\n\nEach was built from its package:\n\n| crate | bytes | files |\n| --- | --- | --- |\n";
        for package in &results.crates {
            writeln!(page, "| {} | {} | {} |", package.name, package.size, package.files)?;
        }
    }
    Ok(page)
}

/// Lists the files below a directory, by their path in it, sorted.
fn list_files(directory: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_path_buf()];
    while let Some(next) = directories.pop() {
        for entry in fs::read_dir(&next)? {
            let path = entry?.path();
            if path.is_dir() {
                directories.push(path);
            } else {
                found.push(path.strip_prefix(directory)?.display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Renders the commands that publish a release, in the order in which a failure does least harm.
fn render_commands(version: &str, directory: &str) -> String {
    format!(
        "git tag --sign v{version} --message 'Sardonyx {version}'\n\
         cargo publish --workspace --locked\n\
         twine upload {directory}/*.whl {directory}/sardonyx-{version}.tar.gz\n\
         git push origin v{version}\n\
         gh release create v{version} --verify-tag --title 'Sardonyx {version}' --notes-file \
         {directory}/release-notes.md {directory}/*.tar.xz {directory}/*.whl {directory}/*.tar.gz \
         {directory}/*.cdx.json {directory}/Containerfile {directory}/NOTICES.txt {directory}/SHA256SUMS\n\
         docker build --tag ghcr.io/sardonyx/sardonyx:{version} --platform linux/amd64 --file \
         {directory}/Containerfile {directory}    # {TARGET}\n\
         docker push ghcr.io/sardonyx/sardonyx:{version}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_begins_with_how_to_install() {
        let plan = Plan::for_tests("1.2.3");
        let page = render(&plan, &Results::default(), "- a change").unwrap();
        assert!(page.starts_with("# Sardonyx 1.2.3\n\n## Install\n"));
        assert!(page.contains("sardonyx-1.2.3-x86_64-unknown-linux-gnu.tar.xz"));
        assert!(page.ends_with("## Changes\n\n- a change\n"), "{page}");
    }
}
