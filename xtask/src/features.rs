//! `cargo xtask features`: the library with each of its features alone.
//!
//! CI lints it with all features and without any. That does not find code of one family that
//! another one uses.

use crate::workspace::{cargo, packages};
use crate::{Result, shell};

pub(crate) fn run() -> Result {
    let packages = packages()?;
    let front = packages.iter().find(|package| package["name"] == "sardonyx");
    let features = front.and_then(|package| package["features"].as_object());
    let features = features.ok_or("the workspace has no package sardonyx")?;
    for feature in features.keys().filter(|feature| *feature != "default") {
        println!("==> {feature} alone");
        shell::run(
            cargo().args(["clippy", "--package", "sardonyx", "--no-default-features"]).args([
                "--features",
                feature,
                "--",
                "--deny",
                "warnings",
            ]),
        )?;
    }
    println!("features: {} build alone", features.len() - 1);
    Ok(())
}
