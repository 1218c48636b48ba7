//! `cargo xtask copies`: counts how often each loop of the kernels is compiled, by instruction set.
//!
//! Each copy of a loop, for another instruction set or element type, costs time to build and bytes.
//! Only hot loops are worth that. `tests/copies.tsv` lists the copies, so that a change of their
//! number is seen in the review that causes it.
//!
//! With `--neon` they are compiled for AArch64, and a family that has copies for AVX2 or AVX-512
//! must have some for NEON, so that none falls back to portable code there.
//!
//! A family is a source file of the crates of kernels, such as `elementwise::binary`. Its copies
//! are roots: the functions that instruction sets multiply. There are three kinds.
//!
//! - Instances of `simd::dispatch::avx2`, `avx512` and `neon`. The generic argument, a loop or a
//!   body, gives the family.
//! - Instances of `separate`, which `Simd::call` runs. The generic argument gives the
//!   family.
//! - Functions in modules called `portable`, `neon`, `avx2` or `avx512`, and in those of
//!   [`EXTENSIONS`]: the tiles that tables point to. Their own path gives the family.
//!
//! The number of roots follows from the sources. The compiler cannot inline a function into a
//! caller without its instructions, `separate` is `inline(never)`, and a table needs addresses. The
//! number of all other functions, which the table shows as the set `none`, depends on inlining.
//! The list leaves them out. They include the portable code of dispatched loops: it has no root,
//! because `dispatch` runs it in place.
//!
//! Roots of identical code that the optimizer merges still count one by one, if they are called
//! from several codegen units. Otherwise only one of them is left. Their bytes count once.
//!
//! A root that is defined anywhere else is not found. A new kind of root needs a line in [`ROOTS`]
//! or [`EXTENSIONS`].

use crate::workspace::{artifacts, cargo, files, readable_path, root};
use crate::{Result, cross, shell};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol, SymbolKind};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::{self, Display, Formatter, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Count the copies of the kernels' loops, by family and instruction set.
#[derive(clap::Args)]
pub(crate) struct Copies {
    /// Fail if the copies differ from tests/copies.tsv.
    #[arg(long, conflicts_with = "bless")]
    check: bool,
    /// Rewrite tests/copies.tsv to the copies that were counted.
    #[arg(long)]
    bless: bool,
    /// Compile for AArch64, and fail if a family has copies for AVX2 or AVX-512 and none for NEON.
    #[arg(long, conflicts_with_all = ["check", "bless"])]
    neon: bool,
}

const LIST: &str = "tests/copies.tsv";

/// A crate of kernels.
struct KernelCrate {
    /// Name of its directory, and of its package and library after `sardonyx`.
    name: &'static str,
    /// Beginning of its families: the module by which `sardonyx-kernels` shows it.
    module: &'static str,
}

const CRATES: [KernelCrate; 4] = [
    KernelCrate { name: "simd", module: "simd::" },
    KernelCrate { name: "elementwise", module: "elementwise::" },
    KernelCrate { name: "gemm", module: "" },
    KernelCrate { name: "kernels", module: "" },
];

/// Beginning of the paths of all kernels, in names of functions, once they are in one namespace.
const CRATE: &str = "sardonyx_kernels::";

/// Module of the SIMD vocabulary. It wraps loops, and has modules called like instruction sets that
/// hold no tiles.
const VOCABULARY: &str = "simd";

/// Instruction set of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Set {
    Portable,
    Neon,
    Avx2,
    Avx512,
    /// The set of functions that are not roots.
    None,
}

/// The sets in the order of the table's columns, which is that of the variants.
const SETS: [Set; 5] = [Set::Portable, Set::Neon, Set::Avx2, Set::Avx512, Set::None];

impl Set {
    /// Returns the name of the set, which modules for it have as well.
    fn name(self) -> &'static str {
        match self {
            Set::Portable => "portable",
            Set::Neon => "neon",
            Set::Avx2 => "avx2",
            Set::Avx512 => "avx512",
            Set::None => "none",
        }
    }

    /// Returns the set that the list calls `name`, or that a module of this name is compiled for.
    fn from_name(name: &str) -> Option<Set> {
        SETS.into_iter().find(|set| *set != Set::None && set.name() == name)
    }
}

/// Beginnings of the names of generic roots, up to the generic argument.
const ROOTS: [(&str, Set); 7] = [
    ("sardonyx_kernels::simd::dispatch::neon::<", Set::Neon),
    ("sardonyx_kernels::simd::dispatch::avx2::<", Set::Avx2),
    ("sardonyx_kernels::simd::dispatch::avx512::<", Set::Avx512),
    (
        "<sardonyx_kernels::simd::portable::Portable as sardonyx_kernels::simd::vectors::Simd>\
         ::call::separate::<",
        Set::Portable,
    ),
    (
        "<sardonyx_kernels::simd::neon::Neon as sardonyx_kernels::simd::vectors::Simd>::call::separate::<",
        Set::Neon,
    ),
    (
        "<sardonyx_kernels::simd::avx2::Avx2 as sardonyx_kernels::simd::vectors::Simd>::call::separate::<",
        Set::Avx2,
    ),
    (
        "<sardonyx_kernels::simd::avx512::Avx512 as sardonyx_kernels::simd::vectors::Simd>::call::separate::<",
        Set::Avx512,
    ),
];

/// Modules of functions that need instructions beyond a set, with that set on x86-64.
const EXTENSIONS: [(&str, Set); 2] =
    [("gemm::bf16::tiles", Set::Avx512), ("gemm::integer::macs::quads", Set::Avx512)];

/// Families without copies for NEON, and why.
const WITHOUT_NEON: [(&str, &str); 1] =
    [("gemm::bf16", "its instruction is one of x86-64; that of AArch64 is not used")];

pub(crate) fn run(task: &Copies) -> Result {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Err("copies are counted on x86-64 Linux only, whose object files have sizes".into());
    }
    if task.neon {
        return check_neon();
    }
    let functions = read_functions(&build_libraries()?)?;
    check_roots(&functions, |set| set != Set::Neon)?;
    let counts = count(&functions, &Modules::read()?);
    print!("{}", render_table(&counts));
    let found = list_copies(&counts);
    let path = root().join(LIST);
    if task.bless {
        fs::write(&path, render_list(&found))?;
    }
    if !task.check {
        return Ok(());
    }
    let text =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", readable_path(&path)))?;
    let differences = compare(&parse_list(&text)?, &found);
    if differences.is_empty() {
        return Ok(());
    }
    println!();
    for difference in &differences {
        println!("{difference}");
    }
    let advice = if differences.iter().any(Difference::is_growth) {
        "Multiply a loop only if it is hot; if it is, run `cargo xtask copies --bless`"
    } else {
        "Fewer copies are good news: run `cargo xtask copies --bless`"
    };
    Err(format!("the copies differ from {LIST}. {advice}").into())
}

/// Compiles for AArch64, prints the copies, and fails if a family that has copies for AVX2 or
/// AVX-512 in the list has none for NEON.
pub(crate) fn check_neon() -> Result {
    // Tests for AArch64 take the same libraries.
    let target = artifacts("cross");
    build(cross::cargo_for_aarch64("build")?, &target)?;
    let functions = read_functions(&libraries(&target.join(cross::AARCH64)))?;
    check_roots(&functions, |set| matches!(set, Set::Portable | Set::Neon))?;
    let counts = count(&functions, &Modules::read()?);
    print!("{}", render_table(&counts));
    let path = root().join(LIST);
    let text =
        fs::read_to_string(&path).map_err(|error| format!("{}: {error}", readable_path(&path)))?;
    let missing = find_without_neon(&parse_list(&text)?, &list_copies(&counts));
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    Err(format!("no code for NEON, but for AVX2 or AVX-512 (see WITHOUT_NEON): {missing}").into())
}

/// Finds the families of the list that fall back to portable code on AArch64.
fn find_without_neon(listed: &List, found: &List) -> Vec<String> {
    let families: BTreeSet<&String> =
        listed.keys().filter(|(_, set)| *set != Set::Portable).map(|(family, _)| family).collect();
    families
        .into_iter()
        .filter(|family| WITHOUT_NEON.iter().all(|(name, _)| *name != family.as_str()))
        .filter(|family| !found.contains_key(&((*family).clone(), Set::Neon)))
        .cloned()
        .collect()
}

/// Builds the libraries of the kernels alone and returns their paths.
///
/// The directory of its own keeps other builds valid. Other flags of the environment would change
/// which functions can be inlined.
fn build_libraries() -> Result<Vec<PathBuf>> {
    let target = artifacts("copies");
    let mut command = cargo();
    command.arg("build");
    build(command, &target)?;
    Ok(libraries(&target))
}

/// Flags of the compiler for libraries that are counted. Symbol mangling v0 keeps the generic
/// arguments in names.
pub(crate) const FLAGS: &str = "-C symbol-mangling-version=v0";

/// Builds the libraries of the kernels with a command of cargo.
fn build(mut command: Command, target: &Path) -> Result {
    command.env_remove("CARGO_ENCODED_RUSTFLAGS");
    command.env("RUSTFLAGS", FLAGS);
    command.args(["--release", "--lib", "--target-dir"]).arg(target);
    for KernelCrate { name, .. } in CRATES {
        command.arg("--package").arg(format!("sardonyx-{name}"));
    }
    shell::run(&mut command)
}

/// Returns the paths of the libraries below the directory of a target.
fn libraries(target: &Path) -> Vec<PathBuf> {
    let library = |name| target.join(format!("release/libsardonyx_{name}.rlib"));
    CRATES.iter().map(|part| library(part.name)).collect()
}

/// A compiled function.
struct Function {
    /// Demangled name, without hashes.
    name: String,
    /// Size in bytes, summed over objects that have their own copy.
    bytes: u64,
}

/// Reads the functions in the objects of libraries.
///
/// Functions whose code is identical can share it. Each of them is returned, and their bytes belong
/// to the first one.
fn read_functions(libraries: &[PathBuf]) -> Result<Vec<Function>> {
    let mut bytes_by_symbol: BTreeMap<String, u64> = BTreeMap::new();
    for library in libraries {
        let data =
            fs::read(library).map_err(|error| format!("{}: {error}", readable_path(library)))?;
        for member in ArchiveFile::parse(&*data)?.members() {
            let member = member?;
            if member.name().ends_with(b".o") {
                read_object(member.data(&*data)?, &mut bytes_by_symbol)?;
            }
        }
    }
    let functions = bytes_by_symbol.into_iter();
    Ok(functions
        .map(|(symbol, bytes)| Function {
            name: in_one_namespace(&format!("{:#}", rustc_demangle::demangle(&symbol))),
            bytes,
        })
        .collect())
}

/// Adds the functions of an object.
fn read_object(data: &[u8], bytes_by_symbol: &mut BTreeMap<String, u64>) -> Result {
    let object = object::File::parse(data)?;
    let mut seen = HashSet::new();
    for symbol in object.symbols() {
        if symbol.kind() != SymbolKind::Text || symbol.size() == 0 {
            continue;
        }
        let is_first = seen.insert((symbol.section_index(), symbol.address()));
        let bytes = bytes_by_symbol.entry(symbol.name()?.to_string()).or_default();
        *bytes += if is_first { symbol.size() } else { 0 };
    }
    Ok(())
}

/// Replaces the crates in a name by the modules by which `sardonyx-kernels` shows them.
fn in_one_namespace(name: &str) -> String {
    CRATES.iter().fold(name.to_string(), |name, KernelCrate { name: part, module }| {
        name.replace(&format!("sardonyx_{part}::"), &format!("{CRATE}{module}"))
    })
}

/// Fails if a kind of root has no function: its name has changed, and nothing would be counted.
fn check_roots(functions: &[Function], is_built: impl Fn(Set) -> bool) -> Result {
    for (start, _) in ROOTS.iter().filter(|(_, set)| is_built(*set)) {
        if !functions.iter().any(|function| function.name.starts_with(start)) {
            return Err(format!("no function begins with `{start}`: update ROOTS").into());
        }
    }
    for (module, _) in EXTENSIONS.iter().filter(|(_, set)| is_built(*set)) {
        let start = format!("{CRATE}{module}::");
        if !functions.iter().any(|function| function.name.starts_with(&start)) {
            return Err(format!("no function is in `{module}`: update EXTENSIONS").into());
        }
    }
    Ok(())
}

/// Paths of the modules that have a source file, such as `gemm::tile`.
struct Modules(BTreeSet<String>);

impl Modules {
    fn read() -> Result<Modules> {
        let mut modules = BTreeSet::new();
        for KernelCrate { name, module } in CRATES {
            let directory = root().join(format!("crates/{name}/src"));
            for path in files(&directory, &[".rs"])? {
                let path = path.strip_prefix(&directory)?.with_extension("");
                modules
                    .insert(format!("{module}{}", path.display().to_string().replace('/', "::")));
            }
        }
        Ok(Modules(modules))
    }

    /// Returns the family and the set of a function by its demangled name, or nothing for a
    /// function without a path of the kernels.
    fn classify(&self, name: &str) -> Option<(&str, Set)> {
        Some((self.find_family(name)?, find_set(name)))
    }

    /// Finds the first path in a name that leads to a source file, and returns the module of this
    /// file. Files of the SIMD vocabulary are the last choice.
    fn find_family(&self, name: &str) -> Option<&str> {
        let starts = name.match_indices(CRATE).map(|(start, _)| &name[start + CRATE.len()..]);
        let mut families = starts.filter_map(|path| self.find_module(take_path(path)));
        let first = families.next()?;
        if !is_vocabulary(first) {
            return Some(first);
        }
        Some(families.find(|family| !is_vocabulary(family)).unwrap_or(first))
    }

    /// Finds the longest path of a source file that holds an item. Modules for single instruction
    /// sets belong to the module above them.
    fn find_module(&self, item: &str) -> Option<&str> {
        let item = find_set_module(item).map_or(item, |(before, _)| before);
        let ends = item.match_indices("::").map(|(end, _)| end).chain([item.len()]);
        let files = ends.filter_map(|end| self.0.get(&item[..end]));
        files.last().map(String::as_str)
    }
}

/// Finds the instruction set of a root by its demangled name, or [`Set::None`] for functions that
/// are not roots.
fn find_set(name: &str) -> Set {
    // Closures end with a brace, parts and clones that the optimizer makes with a suffix.
    let is_instance = name.ends_with('>');
    if let Some((_, set)) = ROOTS.iter().find(|(start, _)| name.starts_with(start)) {
        return if is_instance { *set } else { Set::None };
    }
    let Some(item) = name.strip_prefix(CRATE) else { return Set::None };
    let path = take_path(item);
    if !is_instance && path != item {
        return Set::None;
    }
    if let Some((_, set)) = find_set_module(path) {
        return set;
    }
    let extension = EXTENSIONS.iter().find(|(module, _)| {
        path.strip_prefix(module).is_some_and(|function| function.starts_with("::"))
    });
    extension.map_or(Set::None, |(_, set)| *set)
}

/// Finds the module for an instruction set in the path of an item, and returns the path before it
/// and the set.
fn find_set_module(item: &str) -> Option<(&str, Set)> {
    if is_vocabulary(item) {
        return None;
    }
    let ends = item.match_indices("::").map(|(end, _)| end);
    let mut modules = ends.filter_map(|end| item[..end].rsplit_once("::"));
    modules.find_map(|(before, module)| Some((before, Set::from_name(module)?)))
}

/// Whether a path leads into the SIMD vocabulary.
fn is_vocabulary(path: &str) -> bool {
    path.split("::").next() == Some(VOCABULARY)
}

/// Takes the path that a text begins with.
fn take_path(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    &text[..end.unwrap_or(text.len())]
}

/// Number and size of some functions.
#[derive(Clone, Copy, Default)]
struct Tally {
    copies: usize,
    bytes: u64,
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.copies += other.copies;
        self.bytes += other.bytes;
    }
}

/// The functions of each family, by set in the order of [`SETS`].
type Counts = BTreeMap<String, [Tally; SETS.len()]>;

/// Counts functions by family and set, without those that have no path of the kernels.
fn count(functions: &[Function], modules: &Modules) -> Counts {
    let mut counts = Counts::new();
    for Function { name, bytes } in functions {
        if let Some((family, set)) = modules.classify(name) {
            let tallies = counts.entry(family.to_string()).or_default();
            tallies[set as usize].add(Tally { copies: 1, bytes: *bytes });
        }
    }
    counts
}

/// Renders the copies and bytes of each family and their sums, for people to read.
fn render_table(counts: &Counts) -> String {
    let width = counts.keys().map(String::len).max().unwrap_or(0);
    let mut text = format!("{:width$}", "family");
    for set in SETS {
        let _ = write!(text, " {:>9} {:>9}", set.name(), "bytes");
    }
    text.push('\n');
    let mut sums = [Tally::default(); SETS.len()];
    for tallies in counts.values() {
        for (sum, tally) in sums.iter_mut().zip(tallies) {
            sum.add(*tally);
        }
    }
    let rows = counts.iter().map(|(family, tallies)| (family.as_str(), tallies));
    for (family, tallies) in rows.chain([("all", &sums)]) {
        let _ = write!(text, "{family:width$}");
        for Tally { copies, bytes } in tallies {
            let _ = match copies {
                0 => write!(text, " {0:>9} {0:>9}", "-"),
                _ => write!(text, " {copies:>9} {bytes:>9}"),
            };
        }
        text.push('\n');
    }
    text
}

/// Numbers of copies by family and set. Families without roots are left out.
type List = BTreeMap<(String, Set), usize>;

/// Takes the numbers of roots out of the counts.
fn list_copies(counts: &Counts) -> List {
    let mut list = List::new();
    for (family, tallies) in counts {
        for (set, tally) in SETS.into_iter().zip(tallies) {
            if set != Set::None && tally.copies > 0 {
                list.insert((family.clone(), set), tally.copies);
            }
        }
    }
    list
}

/// Comment at the head of the list.
const HEAD: &str = "\
# Copies of the loops of all kernels, one for each instruction set and element type.
# family: source file of the loop; set: instruction set; copies: number of functions.
# `cargo xtask copies --check` fails if a number differs, `cargo xtask copies --bless` renews the
# file. xtask/src/copies.rs defines which functions count.
";
const COLUMNS: &str = "family\tset\tcopies";

/// Renders the list as text, the inverse of [`parse_list`].
fn render_list(list: &List) -> String {
    let mut text = format!("{HEAD}{COLUMNS}\n");
    for ((family, set), copies) in list {
        let _ = writeln!(text, "{family}\t{}\t{copies}", set.name());
    }
    text
}

fn parse_list(text: &str) -> Result<List> {
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    if lines.next() != Some(COLUMNS) {
        return Err(format!("{LIST} has no line with the names of its columns").into());
    }
    let mut list = List::new();
    for line in lines {
        let row = || {
            let (family, rest) = line.split_once('\t')?;
            let (set, copies) = rest.split_once('\t')?;
            Some(((family.to_string(), Set::from_name(set)?), copies.parse().ok()?))
        };
        let (key, copies) =
            row().ok_or_else(|| format!("{LIST}: expected `{COLUMNS}`, found `{line}`"))?;
        if list.insert(key, copies).is_some() {
            return Err(format!("{LIST}: duplicate family and set `{line}`").into());
        }
    }
    Ok(list)
}

/// A family and set whose number of copies is not the listed one.
#[derive(Debug, PartialEq)]
struct Difference {
    family: String,
    set: Set,
    /// Listed copies, 0 for a line that is missing.
    listed: usize,
    /// Counted copies.
    found: usize,
}

impl Difference {
    /// Whether there are more copies than listed.
    fn is_growth(&self) -> bool {
        self.found > self.listed
    }
}

impl Display for Difference {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Difference { family, set, listed, found } = self;
        let set = set.name();
        match listed {
            0 => write!(f, "{family}, {set}: {found} copies, not listed"),
            _ => write!(f, "{family}, {set}: {found} copies, {listed} listed"),
        }
    }
}

/// Compares the counted copies with the listed ones, in the order of the list.
fn compare(listed: &List, found: &List) -> Vec<Difference> {
    let keys: BTreeSet<_> = listed.keys().chain(found.keys()).collect();
    let copies = |list: &List, key| list.get(key).copied().unwrap_or(0);
    keys.into_iter()
        .map(|key| Difference {
            family: key.0.clone(),
            set: key.1,
            listed: copies(listed, key),
            found: copies(found, key),
        })
        .filter(|difference| difference.listed != difference.found)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_families_and_sets() {
        let modules = Modules::read().expect("the sources are readable");
        for (name, expected) in [
            // Dispatched loops and bodies.
            (
                "crate::simd::dispatch::avx2::<crate::simd::dispatch::Vectorized<\
                 crate::elementwise::binary::Both<f32, crate::elementwise::binary::Add>>>",
                Some(("elementwise::binary", Set::Avx2)),
            ),
            (
                "crate::simd::dispatch::avx512::<crate::pixels::reduce::Segment<crate::reduce::fold::Sum>>",
                Some(("pixels::reduce", Set::Avx512)),
            ),
            // A body that a function defines.
            (
                "crate::simd::dispatch::avx512::<crate::conv::tile::write_operands::Floating<\
                 crate::conv::winograd::ToPoints>>",
                Some(("conv::tile", Set::Avx512)),
            ),
            // A body that a method defines.
            (
                "crate::simd::dispatch::avx2::<<crate::gemm::gemv::Gemv>::run::Dots>",
                Some(("gemm::gemv", Set::Avx2)),
            ),
            (
                "crate::simd::dispatch::neon::<crate::softmax::Row<f32>>",
                Some(("softmax", Set::Neon)),
            ),
            ("crate::conv::tile::neon::TILES::tile::<10, 2>", Some(("conv::tile", Set::Neon))),
            // Bodies in functions of their own.
            (
                "<crate::simd::portable::Portable as crate::simd::vectors::Simd>::call::separate::<\
                 crate::gemm::tile::FinishRows>",
                Some(("gemm::tile", Set::Portable)),
            ),
            (
                "<crate::simd::avx512::Avx512 as crate::simd::vectors::Simd>::call::separate::<\
                 crate::gemm::tile::FinishCopied<12, 2>>",
                Some(("gemm::tile", Set::Avx512)),
            ),
            // Tiles in tables.
            (
                "crate::gemm::tables::portable::FLOATS::tile::<1, 8, false>",
                Some(("gemm::tables", Set::Portable)),
            ),
            (
                "crate::conv::depthwise::avx2::of_single::<7, 3, 1, 0>",
                Some(("conv::depthwise", Set::Avx2)),
            ),
            (
                "crate::conv::tile::avx512::write_pairs::<crate::conv::direct::RoundPlanes>",
                Some(("conv::tile", Set::Avx512)),
            ),
            (
                "crate::gemm::integer::macs::quads::QUADS::tile::<12, 2, true>",
                Some(("gemm::integer::macs", Set::Avx512)),
            ),
            // Functions that are not roots.
            (
                "crate::simd::dispatch::dispatch::<crate::simd::dispatch::Vectorized<crate::softmax::Row<f32>>>",
                Some(("softmax", Set::None)),
            ),
            (
                "<crate::softmax::Row<f32> as crate::simd::dispatch::Loop>::run::<true>::{closure#0}",
                Some(("softmax", Set::None)),
            ),
            (
                "crate::conv::depthwise::avx2::of_single::<7, 3, 1, 0>::{closure#0}",
                Some(("conv::depthwise", Set::None)),
            ),
            (
                "<core::slice::iter::Iter<crate::simd::portable::F4>>::size",
                Some(("simd::portable", Set::None)),
            ),
            ("crate::simd::avx2::transpose_rows::<8>", Some(("simd::avx2", Set::None))),
            (
                "crate::simd::dispatch::avx2::<crate::fourier::Stage>.specialized.1",
                Some(("fourier", Set::None)),
            ),
            ("crate::peak::x86::read_avx512", Some(("peak", Set::None))),
            ("<alloc::vec::Vec<f32>>::reserve", None),
        ] {
            let name = name.replace("crate::", CRATE);
            assert_eq!(modules.classify(&name), expected, "{name}");
        }
    }

    /// Accepts modules of instruction sets that have a file of their own.
    #[test]
    fn families_have_no_modules_for_sets() {
        let modules = ["conv", "conv::tile", "conv::tile::avx2", "simd", "simd::avx2"];
        let modules = Modules(modules.map(str::to_string).into());
        let classified = modules.classify("sardonyx_kernels::conv::tile::avx2::TILES::tile::<1>");
        assert_eq!(classified, Some(("conv::tile", Set::Avx2)));
    }

    #[test]
    fn lists_are_read_as_they_are_written() {
        let list = make_list([("conv::tile", Set::Avx512, 92), ("reduce", Set::Portable, 1)]);
        assert_eq!(parse_list(&render_list(&list)).expect("a list"), list);
        for row in ["reduce\tavx2", "reduce\tnone\t1", "reduce\tavx2\tx", "reduce\tportable\t2"] {
            let text = format!("{}{row}\n", render_list(&list));
            let error = parse_list(&text).expect_err("a line that is not valid").to_string();
            assert!(error.contains(row), "{error}");
        }
    }

    #[test]
    fn families_without_neon_are_found() {
        let listed = make_list([
            ("a", Set::Avx2, 2),
            ("b", Set::Avx512, 1),
            ("c", Set::Portable, 1),
            ("gemm::bf16", Set::Avx512, 28),
        ]);
        let found = make_list([("a", Set::Neon, 1), ("b", Set::Portable, 1)]);
        assert_eq!(find_without_neon(&listed, &found), ["b"]);
    }

    #[test]
    fn differences_are_found_in_both_directions() {
        let listed = make_list([("a", Set::Avx2, 2), ("b", Set::Avx2, 2), ("c", Set::Avx2, 2)]);
        let found = make_list([("a", Set::Avx2, 3), ("b", Set::Avx2, 2), ("d", Set::Avx512, 1)]);
        let differences = compare(&listed, &found);
        let messages: Vec<String> = differences.iter().map(Difference::to_string).collect();
        assert_eq!(
            messages,
            [
                "a, avx2: 3 copies, 2 listed",
                "c, avx2: 0 copies, 2 listed",
                "d, avx512: 1 copies, not listed"
            ]
        );
        let growth: Vec<bool> = differences.iter().map(Difference::is_growth).collect();
        assert_eq!(growth, [true, false, true]);
    }

    fn make_list<const N: usize>(rows: [(&str, Set, usize); N]) -> List {
        rows.into_iter().map(|(family, set, copies)| ((family.to_string(), set), copies)).collect()
    }
}
