//! Private Python environments. Python only prepares data and runs rivals; the product does not use
//! it.

use crate::Result;
use crate::shell;
use crate::workspace::readable_path;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes a virtual environment under `directory` with exactly the packages that `requirements`
/// pins, and its interpreter.
///
/// One that was made from the same pins by the same Python is used again.
pub(crate) fn environment(directory: &Path, requirements: &Path) -> Result<PathBuf> {
    environment_with(directory, requirements, &[])
}

/// Makes an environment like [`environment`], with more options of `pip install`.
pub(crate) fn environment_with(
    directory: &Path,
    requirements: &Path,
    options: &[&str],
) -> Result<PathBuf> {
    let venv = directory.join("venv");
    let interpreter = venv.join("bin/python");
    let pins = fs::read_to_string(requirements)
        .map_err(|error| format!("{}: {error}", readable_path(requirements)))?;
    let version = shell::output(Command::new("python3").arg("--version"))
        .map_err(|error| format!("{error}; Python 3.11 or newer is needed to prepare the data"))?;
    let wanted = format!("{version}{pins}");
    // Written last, so a stopped installation is never taken for a finished one.
    let stamp = venv.join("made-from");
    if fs::read_to_string(&stamp).is_ok_and(|made_from| made_from == wanted) {
        return Ok(interpreter);
    }

    eprintln!("Installing {} into {}", readable_path(requirements), readable_path(&venv));
    fs::create_dir_all(directory)?;
    shell::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv)).map_err(
        |error| format!("{error}; on Debian and Ubuntu the package python3-venv is needed"),
    )?;
    shell::run(
        Command::new(&interpreter)
            .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
            .args(options)
            .arg("--requirement")
            .arg(requirements),
    )?;
    fs::write(stamp, wanted)?;
    Ok(interpreter)
}

/// Returns the search path for programs with those of an environment first: its packages start
/// some by name, such as zig and maturin.
pub(crate) fn search_path(interpreter: &Path) -> Result<OsString> {
    let own = interpreter.parent().map(Path::to_path_buf);
    let others = std::env::var_os("PATH").unwrap_or_default();
    let paths = own.into_iter().chain(std::env::split_paths(&others));
    Ok(std::env::join_paths(paths)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_environment_come_first() {
        let path = search_path(Path::new("/venv/bin/python")).unwrap();
        let first = std::env::split_paths(&path).next();
        assert_eq!(first, Some(PathBuf::from("/venv/bin")));
    }
}
