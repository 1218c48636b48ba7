//! Test commands after a change of one line.
//!
//! A line that is added moves all lines after it, so all code with their numbers in it (messages of
//! panics) changes too. A line that is changed in place shows the cost of the change alone.

use super::calls::{Time, time_call};
use super::{Side, run_aside};
use crate::{Result, shell};
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A function to change and the test command that is run after each change.
pub(super) struct Loop {
    name: &'static str,
    file: &'static str,
    /// First line of the function; it occurs once in the file.
    anchor: &'static str,
    /// Arguments of cargo.
    test: &'static [&'static str],
}

pub(super) const LOOPS: &[Loop] = &[
    Loop {
        name: "a kernel",
        file: "crates/kernels/src/softmax.rs",
        anchor: "    assert_eq!(x.len(), y.len(), \"one output per input\");",
        test: &["test", "-q", "-p", "sardonyx-kernels", "--lib", "softmax"],
    },
    Loop {
        name: "an operator",
        file: "crates/ops/src/nn/conv.rs",
        anchor: "fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {",
        test: &["test", "-q", "-p", "sardonyx-ops", "--lib", "conv"],
    },
    Loop {
        name: "a rewrite",
        file: "crates/runtime/src/rewrite/epilogue.rs",
        anchor: "pub(crate) fn run(program: &mut Program) -> Vec<Note> {",
        test: &["test", "-q", "-p", "sardonyx-runtime", "--test", "integration", "epilogues"],
    },
    Loop {
        name: "a command",
        file: "crates/cli/src/info.rs",
        anchor: "pub(crate) fn info(args: &Args, terminal: &Terminal) -> Result<(), Failure> {",
        test: &["test", "-q", "-p", "sardonyx-cli", "--test", "integration", "info::"],
    },
];

/// Times of the test command of one loop.
pub(super) struct Times {
    /// Name of the loop and its test command.
    pub(super) title: String,
    /// Time after a line was added.
    pub(super) added: Time,
    /// Time after that line was changed in place.
    pub(super) changed: Time,
}

impl Times {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "title": self.title,
            "added": self.added.to_json(),
            "changed": self.changed.to_json(),
        })
    }
}

/// Checks that each loop can be measured in the checkout: git has the files as they are, and each
/// has its function.
pub(super) fn check(root: &Path) -> Result {
    let mut status = Command::new("git");
    status.current_dir(root).args(["status", "--porcelain", "--"]);
    let changes = shell::output(status.args(LOOPS.iter().map(|edit| edit.file)))?;
    if !changes.is_empty() {
        let root = root.display();
        return Err(format!(
            "cannot measure loops in {root}: they edit files, which must be committed first:\n{changes}"
        )
        .into());
    }
    for edit in LOOPS {
        edit.with_statement(&edit.read(root)?, 0)?;
    }
    Ok(())
}

impl Loop {
    /// Measures the test command after both changes. Each round writes other numbers.
    pub(super) fn measure(&self, side: &Side, round: u32) -> Result<Times> {
        let source = self.read(&side.root)?;
        let number = 1000 + 2 * round;
        let added = self.with_statement(&source, number)?;
        let changed = self.with_statement(&source, number + 1)?;
        self.test(side)?;

        let mut file =
            EditedFile::new(side.root.join(self.file), side.path_beside("original"), source)?;
        let added = self.test_edited(side, &file, &added)?;
        let changed = self.test_edited(side, &file, &changed)?;
        file.restore()?;
        Ok(Times { title: self.title(), added, changed })
    }

    fn title(&self) -> String {
        format!("{}: `cargo {}`", self.name, self.test.join(" "))
    }

    fn read(&self, root: &Path) -> Result<String> {
        let path = root.join(self.file);
        Ok(fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Inserts a line with a statement that survives optimisation into the function.
    fn with_statement(&self, source: &str, number: u32) -> Result<String> {
        let Loop { file, anchor, .. } = self;
        let found = source.matches(anchor).count();
        match source.split_once(anchor) {
            Some((before, after)) if found == 1 => {
                Ok(format!("{before}{anchor}\n    std::hint::black_box({number});{after}"))
            }
            _ => Err(format!("{file}: expected `{anchor}` once, found it {found} times").into()),
        }
    }

    fn test_edited(&self, side: &Side, file: &EditedFile, text: &str) -> Result<Time> {
        fs::write(&file.path, text)?;
        let ((), time) = time_call(|| self.test(side))?;
        Ok(time)
    }

    fn test(&self, side: &Side) -> Result {
        // Without the variable, builds are incremental.
        run_aside(side.cargo().args(self.test).env_remove("CARGO_INCREMENTAL"))
    }
}

/// File whose text is restored when this value is dropped, or when this process dies.
///
/// Ctrl-C ends this process without dropping the value. Another process therefore waits for the end
/// of the pipe to it, which the kernel closes in any case, and copies the text back.
struct EditedFile {
    path: PathBuf,
    /// Copy of the original text.
    backup: PathBuf,
    original: String,
    /// Process that restores the file; `None` once that is done.
    keeper: Option<Child>,
}

impl EditedFile {
    /// Keeps `original`, the text of the file at `path`, in a file at `backup` until it is
    /// restored.
    fn new(path: PathBuf, backup: PathBuf, original: String) -> Result<EditedFile> {
        fs::write(&backup, &original)
            .map_err(|error| format!("cannot back up {}: {error}", path.display()))?;
        let keeper = Command::new("sh")
            .args(["-c", r#"cat >/dev/null; cp -- "$1" "$2" && rm -- "$1""#, "sh"])
            .args([&backup, &path])
            .stdin(Stdio::piped())
            // Outside the group of the terminal, so that Ctrl-C does not end it too.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start sh: {error}"))?;
        Ok(EditedFile { path, backup, original, keeper: Some(keeper) })
    }

    /// Restores the file unless that has been done.
    fn restore(&mut self) -> Result {
        let Some(mut keeper) = self.keeper.take() else { return Ok(()) };
        // Closes the pipe.
        drop(keeper.stdin.take());
        let restored = match keeper.wait() {
            Ok(status) if status.success() => Ok(()),
            _ => self.write_original(),
        };
        restored.map_err(|error| {
            let (path, backup) = (self.path.display(), self.backup.display());
            format!("cannot restore {path}: {error}; its text is in {backup}").into()
        })
    }

    fn write_original(&self) -> io::Result<()> {
        fs::write(&self.path, &self.original)?;
        if self.backup.exists() { fs::remove_file(&self.backup) } else { Ok(()) }
    }
}

impl Drop for EditedFile {
    fn drop(&mut self) {
        if let Err(reason) = self.restore() {
            eprintln!("xtask: {reason}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::{artifacts, root};

    #[test]
    fn every_function_is_found_once() {
        for edit in LOOPS {
            let source = edit.read(root()).unwrap();
            let [added, changed] = [1000, 1001].map(|n| edit.with_statement(&source, n).unwrap());
            let lines = |text: &str| text.lines().count();
            assert_eq!(lines(&added), lines(&source) + 1, "{}", edit.file);
            let different = added.lines().zip(changed.lines()).filter(|(one, two)| one != two);
            assert_eq!(different.count(), 1, "{}", edit.file);
            assert_eq!(lines(&added), lines(&changed), "{}", edit.file);
        }
    }

    #[test]
    fn a_function_that_is_not_found_once_is_an_error() {
        let edit = Loop { name: "n", file: "f.rs", anchor: "fn f() {", test: &[] };
        let error = |source: &str| edit.with_statement(source, 1).unwrap_err().to_string();
        assert_eq!(error("fn g() {}"), "f.rs: expected `fn f() {` once, found it 0 times");
        assert_eq!(
            error("fn f() {} fn f() {}"),
            "f.rs: expected `fn f() {` once, found it 2 times"
        );
        assert_eq!(
            edit.with_statement("fn f() {\n}\n", 1).unwrap(),
            "fn f() {\n    std::hint::black_box(1);\n}\n"
        );
    }

    #[test]
    fn an_edited_file_is_restored() {
        let directory = artifacts("loops-test");
        fs::create_dir_all(&directory).unwrap();
        let (path, backup) = (directory.join("file"), directory.join("original"));
        let edited = || {
            fs::write(&path, "original").unwrap();
            let file = EditedFile::new(path.clone(), backup.clone(), "original".into()).unwrap();
            fs::write(&path, "edited").unwrap();
            file
        };
        let assert_restored = |how: &str| {
            assert_eq!(fs::read_to_string(&path).unwrap(), "original", "{how}");
            assert!(!backup.exists(), "{how}");
        };

        edited().restore().unwrap();
        assert_restored("by a call");
        drop(edited());
        assert_restored("by the end of a block");
        let mut file = edited();
        file.keeper.as_mut().unwrap().kill().unwrap();
        file.restore().unwrap();
        assert_restored("without the other process");
        fs::remove_dir_all(directory).unwrap();
    }
}
