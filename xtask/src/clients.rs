//! `cargo xtask clients`: programs that others wrote for the C interface of onnxruntime, with our
//! library in the place of theirs.
//!
//! Each client runs twice, once with the library that it comes with and once with ours:
//! onnxruntime-node on the node cases of the onnx package, transformers.js and onnxruntime-genai
//! on models in directories, a program that uses the classes of the C++ header, and programs that
//! use Rust crates on top of `ort`. What works with theirs must work with ours, and results must be
//! equal.

use crate::workspace::{artifacts, cargo, files, readable_path, root, run_build};
use crate::{Result, python, shell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Packages of the npm registry: the client, and what it imports.
const PACKAGES: [&str; 2] = ["onnxruntime-node@1.30.0", "onnxruntime-common@1.30.0"];

/// Package of the npm registry with transformers.js.
const TRANSFORMERS: &str = "@huggingface/transformers@4.3.2";

/// Package of the npm registry that has the headers of onnxruntime, for a system that Sardonyx does
/// not need, and their directory in it.
const HEADERS: (&str, &str) = (
    "com.github.asus4.onnxruntime@0.4.9",
    "package/Plugins/iOS~/onnxruntime.xcframework/ios-arm64/onnxruntime.framework/Headers",
);

/// Directory of the library of a client, in its package.
const LIBRARIES: &str = "bin/napi-v6/linux/x64";

/// Name of the library.
const LIBRARY: &str = "libonnxruntime.so.1";

/// A program of `tests/clients` that uses a crate on top of `ort`.
struct CrateProgram {
    name: &'static str,
    /// Lines of the manifest for its dependencies.
    dependencies: &'static str,
    /// Largest difference of a number from that with the library of onnxruntime.
    tolerance: f64,
}

/// Program for fastembed. As `ort` opens its library at run time, no build downloads one.
const FASTEMBED: CrateProgram = CrateProgram {
    name: "fastembed",
    dependencies: r#"
fastembed = { version = "=7.7.0", default-features = false, features = ["ort-load-dynamic"] }
"#,
    // Elements of normalized vectors and scores near 1.
    tolerance: 1e-5,
};

/// Program for magika, which has its model in the crate and leaves the features of `ort` to
/// programs. This release of `ort` compiles only with a feature for the version of the table.
const MAGIKA: CrateProgram = CrateProgram {
    name: "magika",
    dependencies: r#"
magika = "=1.1.0"
ort = { version = "=2.0.0-rc.12", default-features = false, features = ["api-24", "load-dynamic"] }
"#,
    // Its variances are differences of large sums. Of 198 files, scores by onnxruntime were up to
    // 1.8e-2 from those in 64 bits, with as much between a file alone and in a batch.
    tolerance: 5e-2,
};

/// Number of files that magika labels, of the workspace and of the system each.
const LABELED: usize = 100;

#[derive(clap::Args)]
pub(crate) struct Clients {
    /// The cargo profile that the library is built with.
    #[arg(long, value_name = "NAME", default_value = "release")]
    profile: String,
    /// A library that is there already.
    #[arg(long, value_name = "FILE")]
    library: Option<PathBuf>,
    /// Directories of models for transformers.js, onnxruntime-genai and fastembed, each with
    /// `model.onnx`, `config.json` and `tokenizer.json`, such as those of `cargo xtask generate`.
    /// Without them none of the three is run.
    #[arg(long, value_name = "DIR")]
    models: Option<PathBuf>,
    /// The headers of onnxruntime; without them, those of a package of 150 MB.
    #[arg(long, value_name = "DIR")]
    headers: Option<PathBuf>,
    /// Compiles with a compiler and checks the C++ program with valgrind.
    #[arg(long)]
    valgrind: bool,
    /// Builds programs with crates on top of `ort`, which are downloaded, and runs them.
    #[arg(long)]
    crates: bool,
    /// Times calls of Run on a Relu of 4 elements with both libraries.
    #[arg(long)]
    overhead: bool,
}

pub(crate) fn run(task: &Clients) -> Result {
    let library = match &task.library {
        Some(library) => std::path::absolute(library)?,
        None => build(&task.profile)?,
    };
    let directory = artifacts("clients");
    fs::create_dir_all(&directory)?;
    let pair = Pair { theirs: install(&directory, "theirs")?, ours: install(&directory, "ours")? };
    fs::copy(&library, pair.ours.join(LIBRARIES).join(LIBRARY))?;
    let mut lost = compare_cases(&pair, &make_cases(&directory)?)?;
    if let Some(models) = &task.models {
        lost += compare_pipelines(&directory, &library, models)?;
        lost += compare_tokens(&directory, &pair, models)?;
    }
    let headers = match &task.headers {
        Some(headers) => headers.clone(),
        None => fetch_headers(&directory)?,
    };
    lost += compare_classes(&pair, &headers, task.valgrind)?;
    if task.crates {
        lost += compare_crates(&directory, &pair, task.models.as_deref())?;
    }
    if task.overhead {
        print_overhead(&pair, &headers)?;
    }
    if lost > 0 {
        return Err(format!("{lost} results differ from those with the client's library").into());
    }
    Ok(())
}

/// The client with the library of its package and the client with ours.
struct Pair {
    theirs: PathBuf,
    ours: PathBuf,
}

/// Runs the node cases with both libraries and returns the number that passes with theirs only.
fn compare_cases(pair: &Pair, cases: &Path) -> Result<usize> {
    let theirs = run_cases(&pair.theirs, cases)?;
    let ours = run_cases(&pair.ours, cases)?;
    let mut lost = 0;
    for (name, state) in theirs.iter().filter(|(_, state)| *state == "passes") {
        let found = ours.get(name).map_or("is missing", String::as_str);
        if found != state {
            println!("{name}: {found}");
            lost += 1;
        }
    }
    println!(
        "onnxruntime-node, library of its package: {}; ours: {}",
        count(&theirs),
        count(&ours)
    );
    Ok(lost)
}

/// Counts the cases by their state.
fn count(cases: &BTreeMap<String, String>) -> String {
    let counts = ["passes", "differs", "fails"].map(|start| {
        let states = cases.values().filter(|state| state.starts_with(start));
        format!("{start}: {}", states.count())
    });
    counts.join(", ")
}

/// Runs pipelines of transformers.js with both libraries and returns the number of models whose
/// results differ. What fails with theirs does not count.
fn compare_pipelines(directory: &Path, library: &Path, models: &Path) -> Result<usize> {
    let place = directory.join("transformers");
    fs::create_dir_all(&place)?;
    let mut install = Command::new("npm");
    install.args(["install", "--ignore-scripts", "--no-audit", "--no-fund", TRANSFORMERS]);
    shell::run(install.arg("--prefix").arg(&place))?;
    let modules = place.join("node_modules");
    let target = modules.join("onnxruntime-node").join(LIBRARIES).join(LIBRARY);
    let original = place.join(LIBRARY);
    if !original.exists() {
        fs::copy(&target, &original)?;
    }
    let theirs = run_pipelines(&modules, &original, models)?;
    let ours = run_pipelines(&modules, library, models)?;
    Ok(compare_lines("transformers.js", &theirs, &ours))
}

/// Compares a line of JSON for each model and returns the number of those that differ. What fails
/// with the client's library does not count.
fn compare_lines(client: &str, theirs: &[String], ours: &[String]) -> usize {
    let works = theirs.iter().filter(|line| !line.contains("\"error\":"));
    let lost: Vec<&String> = works.clone().filter(|line| !ours.contains(line)).collect();
    for line in &lost {
        println!("{client} differs from {line}");
    }
    println!("{client}: {} models run, {} differ", works.count(), lost.len());
    lost.len()
}

/// Generates with onnxruntime-genai and both libraries and returns the number of models whose
/// tokens differ.
fn compare_tokens(directory: &Path, pair: &Pair, models: &Path) -> Result<usize> {
    let place = directory.join("genai");
    fs::create_dir_all(&place)?;
    let requirements = root().join("tests/clients/requirements.txt");
    let interpreter = python::environment_with(&place, &requirements, &["--no-deps"])?;
    let theirs = generate_tokens(&interpreter, &place.join("theirs"), &pair.theirs, models)?;
    let ours = generate_tokens(&interpreter, &place.join("ours"), &pair.ours, models)?;
    Ok(compare_lines("onnxruntime-genai", &theirs, &ours))
}

/// Generates with the library of a client and returns a line for each model.
fn generate_tokens(
    interpreter: &Path,
    scratch: &Path,
    client: &Path,
    models: &Path,
) -> Result<Vec<String>> {
    let script = root().join("tests/clients/genai.py");
    let library = client.join(LIBRARIES).join(LIBRARY);
    let mut command = Command::new(interpreter);
    let lines = shell::output(command.arg(script).arg(models).arg(scratch).arg(library))?;
    Ok(lines.lines().map(str::to_string).collect())
}

/// Runs the pipelines with a library, which is put into the place of the client's, and returns a
/// line for each model.
fn run_pipelines(modules: &Path, library: &Path, models: &Path) -> Result<Vec<String>> {
    fs::copy(library, modules.join("onnxruntime-node").join(LIBRARIES).join(LIBRARY))?;
    let script = root().join("tests/clients/pipelines.js");
    let lines = shell::output(Command::new("node").arg(script).arg(modules).arg(models))?;
    Ok(lines.lines().map(str::to_string).collect())
}

/// Unpacks the headers of onnxruntime and returns their directory.
fn fetch_headers(directory: &Path) -> Result<PathBuf> {
    let (package, inside) = HEADERS;
    let place = directory.join("headers");
    let headers = place.join(inside);
    if !headers.exists() {
        unpack(directory, package, &place, 0)?;
    }
    Ok(headers)
}

/// Compiles a program in C++ against the headers and returns its path. It is linked with the
/// library of the client, so that it looks up symbols of that version.
fn compile(pair: &Pair, headers: &Path, name: &str) -> Result<PathBuf> {
    let program = artifacts("clients").join(name);
    let mut compiler = Command::new("c++");
    compiler.args(["-std=c++17", "-O1", "-g", "-I"]).arg(headers);
    compiler.arg(root().join("tests/clients").join(format!("{name}.cc"))).arg("-o").arg(&program);
    compiler.arg(pair.theirs.join(LIBRARIES).join(LIBRARY)).arg("-ldl");
    shell::run(&mut compiler)?;
    Ok(program)
}

/// Runs the program with the library of a client, within a tool, and returns its lines.
fn run_classes(program: &Path, client: &Path, tool: &[&str]) -> Result<Vec<String>> {
    let scratch = artifacts("clients").join("scratch");
    fs::create_dir_all(&scratch)?;
    let mut words = tool.iter().map(Path::new).chain([program]);
    let mut command = Command::new(words.next().unwrap_or(program));
    command.args(words).arg(root().join("examples/digits/digits.onnx")).arg(&scratch);
    command.env("LD_LIBRARY_PATH", client.join(LIBRARIES));
    Ok(shell::output(&mut command)?.lines().map(str::to_string).collect())
}

/// Runs the program that uses the classes of the C++ header with both libraries, and returns the
/// number of lines that differ. What ours does not have is counted and printed.
fn compare_classes(pair: &Pair, headers: &Path, checks_memory: bool) -> Result<usize> {
    let program = compile(pair, headers, "classes")?;
    let (theirs, ours) =
        (run_classes(&program, &pair.theirs, &[])?, run_classes(&program, &pair.ours, &[])?);
    let (mut lost, mut absent) = (theirs.len().abs_diff(ours.len()), 0);
    for (their, our) in theirs.iter().zip(&ours).filter(|(their, our)| their != our) {
        if our.ends_with("NOT_IMPLEMENTED") {
            println!("not there: {their}");
            absent += 1;
        } else {
            println!("theirs: {their}\nours:   {our}");
            lost += 1;
        }
    }
    println!("C++ header: {} lines, {lost} differ, {absent} are not there", theirs.len());
    if checks_memory {
        // Tables of statics are pointed to at their middle, so they count as possibly lost.
        let tool = [
            "valgrind",
            "--quiet",
            "--leak-check=full",
            "--errors-for-leak-kinds=definite,indirect",
            "--show-leak-kinds=definite,indirect",
            "--error-exitcode=9",
        ];
        run_classes(&program, &pair.ours, &tool)?;
        println!("valgrind: no leak and no invalid access");
    }
    Ok(lost)
}

/// Runs programs with crates on top of `ort` with both libraries and returns the number of results
/// that differ. The programs of models need `models`.
fn compare_crates(directory: &Path, pair: &Pair, models: Option<&Path>) -> Result<usize> {
    let list = directory.join("files.txt");
    let mut paths = pick_files(root(), LABELED)?;
    paths.extend(pick_files(Path::new("/usr/share"), LABELED)?);
    fs::write(&list, paths.join("\n"))?;
    let mut lost = compare_crate(directory, pair, &MAGIKA, &[&list])?;
    if let Some(models) = models {
        let texts = root().join("CHANGELOG.md");
        lost += compare_crate(directory, pair, &FASTEMBED, &[models, &texts])?;
    }
    Ok(lost)
}

/// Builds a program, runs it with both libraries, and returns the number of results that differ.
fn compare_crate(
    directory: &Path,
    pair: &Pair,
    program: &CrateProgram,
    arguments: &[&Path],
) -> Result<usize> {
    let executable = build_crate(directory, program)?;
    let theirs = run_crate(&executable, arguments, &pair.theirs)?;
    let ours = run_crate(&executable, arguments, &pair.ours)?;
    compare_numbers(program, &theirs, &ours)
}

/// Runs a program with the library of a client and returns its output.
fn run_crate(executable: &Path, arguments: &[&Path], client: &Path) -> Result<String> {
    let mut command = Command::new(executable);
    command.args(arguments).env("ORT_DYLIB_PATH", client.join(LIBRARIES).join(LIBRARY));
    shell::output(&mut command)
}

/// Writes a package for a program, outside of the workspace, builds it and returns its path.
fn build_crate(directory: &Path, program: &CrateProgram) -> Result<PathBuf> {
    let CrateProgram { name, dependencies, .. } = program;
    let source = root().join("tests/clients").join(format!("{name}.rs"));
    let package = directory.join("crates").join(name);
    fs::create_dir_all(&package)?;
    let manifest = package.join("Cargo.toml");
    let text = format!(
        "[package]\nname = \"{name}-client\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [[bin]]\nname = \"{name}-client\"\npath = {source:?}\n\n[dependencies]{dependencies}"
    );
    fs::write(&manifest, text)?;
    let mut command = cargo();
    let messages = run_build(command.args(["build", "--manifest-path"]).arg(&manifest))?;
    let built = messages.iter().find_map(|message| message["executable"].as_str());
    Ok(built.ok_or_else(|| format!("the build of {name} made no program"))?.into())
}

/// Returns paths of up to `count` files below a directory, of as many suffixes as there are.
fn pick_files(directory: &Path, count: usize) -> Result<Vec<String>> {
    let mut groups: BTreeMap<Option<OsString>, Vec<String>> = BTreeMap::new();
    for path in files(directory, &[""])?.iter().filter(|path| !path.is_symlink()) {
        if let Some(text) = path.to_str() {
            let suffix = path.extension().map(OsString::from);
            groups.entry(suffix).or_default().push(text.to_string());
        }
    }
    let turns = groups.values().map(Vec::len).max().unwrap_or(0);
    let picked = (0..turns).flat_map(|turn| groups.values().filter_map(move |g| g.get(turn)));
    Ok(picked.take(count).cloned().collect())
}

/// Compares lines of a name, a tab and numbers, and returns the number of those that differ. What
/// fails with the client's library does not count.
fn compare_numbers(program: &CrateProgram, theirs: &str, ours: &str) -> Result<usize> {
    let CrateProgram { name: client, tolerance, .. } = program;
    let ours: BTreeMap<&str, &str> =
        ours.lines().filter_map(|line| line.split_once('\t')).collect();
    let (mut count, mut lost, mut largest) = (0, 0, 0.0);
    for (name, numbers) in theirs.lines().filter_map(|line| line.split_once('\t')) {
        if numbers.starts_with("error: ") {
            println!("{client}, library of onnxruntime: {name}: {numbers}");
            continue;
        }
        count += 1;
        let found = ours.get(name).map_or(f64::INFINITY, |found| difference(numbers, found));
        if found > *tolerance {
            println!("{client} differs by {found} from {name}");
            lost += 1;
        }
        largest = f64::max(largest, found);
    }
    if count == 0 {
        return Err(format!("{client} has no results with the library of onnxruntime").into());
    }
    println!("{client}: {count} results, {lost} differ, largest difference {largest:.1e}");
    Ok(lost)
}

/// Returns the largest difference of numbers in text, or infinity if counts differ or a number is
/// missing, infinite or NaN.
fn difference(theirs: &str, ours: &str) -> f64 {
    let (theirs, ours) = (parse_numbers(theirs), parse_numbers(ours));
    if theirs.len() != ours.len() {
        return f64::INFINITY;
    }
    let differences = theirs.iter().zip(&ours).map(|(their, our)| (their - our).abs());
    differences.map(|next| if next.is_nan() { f64::INFINITY } else { next }).fold(0.0, f64::max)
}

/// Parses numbers with spaces between them. Text of any other form becomes NaN.
fn parse_numbers(text: &str) -> Vec<f64> {
    text.split(' ').map(|word| word.parse().unwrap_or(f64::NAN)).collect()
}

/// Prints the times of calls of Run with both libraries, by turns.
fn print_overhead(pair: &Pair, headers: &Path) -> Result {
    let model = artifacts("clients").join("relu.onnx");
    let mut command = Command::new(compile(pair, headers, "overhead")?);
    command.arg(model);
    for client in [&pair.theirs, &pair.ours] {
        command.arg(client.join(LIBRARIES).join(LIBRARY));
    }
    print!("{}", shell::output(&mut command)?);
    Ok(())
}

/// Builds the shared library and returns its path.
fn build(profile: &str) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "-p", "sardonyx-libonnxruntime", "--profile", profile]);
    command.args(["--features", "symbol-versions"]);
    let messages = run_build(&mut command)?;
    let files = messages.iter().flat_map(|message| message["filenames"].as_array()).flatten();
    let mut libraries = files.filter_map(|file| file.as_str());
    let found = libraries.find(|file| file.ends_with("libonnxruntime.so"));
    Ok(found.ok_or("the build made no libonnxruntime.so")?.into())
}

/// Writes the cases of the onnx package.
fn make_cases(directory: &Path) -> Result<PathBuf> {
    let requirements = root().join("tests/conformance/requirements.txt");
    let interpreter = python::environment(directory, &requirements)?;
    let cases = directory.join("cases");
    let script = root().join("tests/clients/make_cases.py");
    shell::run(Command::new(interpreter).arg(script).arg(&cases))?;
    Ok(cases)
}

/// Unpacks the client and returns its directory. Runs no script of its package, which downloads.
fn install(directory: &Path, name: &str) -> Result<PathBuf> {
    let modules = directory.join(name).join("node_modules");
    for package in PACKAGES {
        let (short, _) = package.split_once('@').unwrap_or((package, ""));
        unpack(directory, package, &modules.join(short), 1)?;
    }
    Ok(modules.join("onnxruntime-node"))
}

/// Unpacks a package of the npm registry, without the first directories of its paths.
fn unpack(directory: &Path, package: &str, place: &Path, stripped: usize) -> Result {
    fs::create_dir_all(place)?;
    let mut pack = Command::new("npm");
    let packed = shell::output(pack.args(["pack", "--silent", package]).current_dir(directory))?;
    let archive = directory.join(packed.trim());
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(&archive).arg("-C").arg(place);
    shell::run(tar.arg(format!("--strip-components={stripped}")))?;
    fs::remove_file(archive)?;
    Ok(())
}

/// Runs the cases and returns the state of each.
fn run_cases(client: &Path, cases: &Path) -> Result<BTreeMap<String, String>> {
    println!("{}", readable_path(client));
    let script = root().join("tests/clients/cases.js");
    let lines = shell::output(Command::new("node").arg(script).arg(client).arg(cases))?;
    let pairs = lines.lines().filter_map(|line| line.split_once(": "));
    Ok(pairs.map(|(name, state)| (name.to_string(), state.to_string())).collect())
}
