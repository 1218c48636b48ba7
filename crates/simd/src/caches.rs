//! Cache sizes that one thread can rely on, found once at run time.
//!
//! Kernels block their loops by these sizes. They decide the order of work only: lengths of chains
//! of additions are constants, so that results do not depend on the machine.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Cache sizes per core, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// First-level data cache.
    pub near: usize,
    /// Second-level cache, or the core's share of it where cores share one.
    pub own: usize,
    /// The core's share of the last level; the size of `own` on processors with two levels.
    pub shared: usize,
}

/// Environment variable that overrides the sizes.
const VARIABLE: &str = "SARDONYX_CACHES";

/// Limit: smallest and largest size accepted, in bytes. Below the smallest, blocks of a product
/// would hold less than one tile.
const BOUNDS: [usize; 2] = [4 << 10, 1 << 30];

impl Caches {
    /// Sizes assumed where the machine reports none.
    pub const FALLBACK: Caches = Caches { near: 32 << 10, own: 512 << 10, shared: 4 << 20 };

    /// Returns the sizes to block for: those of the environment variable `SARDONYX_CACHES`, such as
    /// `32K,512K,4M` (first level, second level, share of the last level), or else those of this
    /// machine. An empty variable counts as unset. Read once per process.
    ///
    /// # Errors
    ///
    /// The variable does not hold three sizes from 4K to 1G in ascending order.
    pub fn from_environment() -> Result<Caches, UnknownCaches> {
        static REQUESTED: OnceLock<Result<Caches, UnknownCaches>> = OnceLock::new();
        REQUESTED
            .get_or_init(|| match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
                Some(value) => Caches::parse(&value).ok_or(UnknownCaches { value }),
                None => Ok(Caches::of_machine()),
            })
            .clone()
    }

    /// Returns the sizes to block for, those of this machine if the variable is malformed.
    pub fn detect() -> Caches {
        static DETECTED: OnceLock<Caches> = OnceLock::new();
        *DETECTED
            .get_or_init(|| Caches::from_environment().unwrap_or_else(|_| Caches::of_machine()))
    }

    /// Returns the number of floats in a fraction of the first-level cache, at least 1,024.
    pub fn near_floats(&self, numerator: usize, denominator: usize) -> usize {
        share_of_floats(self.near, numerator, denominator)
    }

    /// Returns the number of floats in a fraction of the second-level cache, at least 1,024.
    pub fn own_floats(&self, numerator: usize, denominator: usize) -> usize {
        share_of_floats(self.own, numerator, denominator)
    }

    /// Returns a fraction of the second-level cache in bytes, at least 4,096.
    pub fn own_bytes(&self, numerator: usize, denominator: usize) -> usize {
        share_of_floats(self.own, numerator, denominator) * size_of::<f32>()
    }

    /// Finds the sizes of this machine: asks the operating system, then the processor.
    fn of_machine() -> Caches {
        Caches::from_sysfs(Path::new("/sys/devices/system/cpu"), &allowed_processors())
            .or_else(from_system)
            .or_else(from_processor)
            .filter(Caches::is_plausible)
            .unwrap_or(Caches::FALLBACK)
    }

    fn is_plausible(&self) -> bool {
        let Caches { near, own, shared } = *self;
        BOUNDS[0] <= near && near <= own && own <= shared && shared <= BOUNDS[1]
    }

    /// Parses three sizes such as `32K,512K,4M`.
    fn parse(text: &OsStr) -> Option<Caches> {
        let sizes: Option<Vec<usize>> = text.to_str()?.split(',').map(parse_size).collect();
        let [near, own, shared] = sizes?[..] else { return None };
        Some(Caches { near, own, shared }).filter(Caches::is_plausible)
    }

    /// Reads the processor directory of Linux and returns the smallest size of each level over
    /// `processors`. Returns `None` if it has no entry for them.
    fn from_sysfs(root: &Path, processors: &[usize]) -> Option<Caches> {
        processors
            .iter()
            .filter_map(|processor| {
                let directory = root.join(format!("cpu{processor}"));
                let of_core = read_trimmed(&directory.join("topology/thread_siblings_list"));
                let threads = of_core.map_or(1, |list| parse_list(&list).len().max(1));
                let levels = (0..8).map_while(|index| {
                    Level::from_sysfs(&directory.join(format!("cache/index{index}")))
                });
                Level::per_core(levels, threads)
            })
            .reduce(|a, b| Caches {
                near: a.near.min(b.near),
                own: a.own.min(b.own),
                shared: a.shared.min(b.shared),
            })
    }
}

/// Sizes in the form of `SARDONYX_CACHES`, in KiB: `32K,512K,4096K`.
impl fmt::Display for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [near, own, shared] = [self.near, self.own, self.shared].map(|size| size >> 10);
        write!(f, "{near}K,{own}K,{shared}K")
    }
}

/// Error for a malformed `SARDONYX_CACHES`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownCaches {
    value: OsString,
}

impl fmt::Display for UnknownCaches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{VARIABLE} is {:?}, but must be three ascending sizes from 4K to 1G, such as \
             32K,512K,4M",
            self.value
        )
    }
}

impl std::error::Error for UnknownCaches {}

/// One cache as a processor sees it.
struct Level {
    /// Distance from the processor, from 1.
    level: usize,
    /// Whether it holds data, alone or with instructions.
    has_data: bool,
    /// Size in bytes.
    size: usize,
    /// Number of hardware threads that share it.
    sharers: usize,
}

impl Level {
    /// Reads the directory of one cache, such as `cpu0/cache/index2`.
    fn from_sysfs(directory: &Path) -> Option<Level> {
        let sharers = read_trimmed(&directory.join("shared_cpu_list"));
        Some(Level {
            level: read_trimmed(&directory.join("level"))?.parse().ok()?,
            has_data: read_trimmed(&directory.join("type"))? != "Instruction",
            size: parse_size(&read_trimmed(&directory.join("size"))?)?,
            sharers: sharers.map_or(1, |list| parse_list(&list).len().max(1)),
        })
    }

    /// Combines the caches of a core with `threads` hardware threads into its sizes.
    fn per_core(levels: impl Iterator<Item = Level>, threads: usize) -> Option<Caches> {
        let (mut near, mut own, mut last) = (None, None, (0, 0));
        for level in levels.filter(|level| level.has_data) {
            let cores = (level.sharers / threads).max(1);
            let share = level.size / cores;
            match level.level {
                1 => near = Some(share),
                2 => own = Some(share),
                _ => {}
            }
            last = last.max((level.level, share));
        }
        let (near, own) = (near?, own?);
        // A large part of a cache that many cores share may be smaller than the level below it.
        Some(Caches { near, own: own.max(near), shared: last.1.max(own).max(near) })
    }
}

fn share_of_floats(bytes: usize, numerator: usize, denominator: usize) -> usize {
    (bytes / size_of::<f32>() * numerator / denominator).max(1024)
}

/// Parses a size in bytes, with `K`, `M` or `G` for powers of 1,024.
fn parse_size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (number, shift) = match text.as_bytes().last()? {
        b'K' | b'k' => (&text[..text.len() - 1], 10),
        b'M' | b'm' => (&text[..text.len() - 1], 20),
        b'G' | b'g' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: usize = number.parse().ok()?;
    number.checked_mul(1 << shift)
}

/// Parses a list of processors such as `0-3,8`.
fn parse_list(text: &str) -> Vec<usize> {
    /// Limit: more processors than any machine has. Bounds the work on a damaged list.
    const MOST: usize = 1 << 16;
    let ranges = text.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse().ok()?..=last.trim().parse::<usize>().ok()?.min(MOST))
    });
    ranges.flatten().take(MOST).collect()
}

/// Returns the first and the last processor that this process may run on. Hybrid processors number
/// one kind of core after the other, so these two are of different kinds if any are.
fn allowed_processors() -> Vec<usize> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let processors = list.map_or_else(|| vec![0], parse_list);
    match processors[..] {
        [first, .., last] => vec![first, last],
        _ => processors,
    }
}

fn read_trimmed(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_string())
}

/// Reads the sizes from macOS, for the slowest kind of core.
#[cfg(target_os = "macos")]
fn from_system() -> Option<Caches> {
    use std::ffi::{CStr, c_char, c_int, c_void};

    unsafe extern "C" {
        fn sysctlbyname(
            name: *const c_char,
            old: *mut c_void,
            old_bytes: *mut usize,
            new: *mut c_void,
            new_bytes: usize,
        ) -> c_int;
    }

    /// Reads an integer of 32 or 64 bits, which is stored in the machine's order: little-endian.
    fn read(name: &CStr) -> Option<usize> {
        let (mut value, mut bytes) = (0u64, size_of::<u64>());
        // SAFETY: the name ends with a zero byte, and the value has room for `bytes` bytes.
        let status = unsafe {
            sysctlbyname(
                name.as_ptr(),
                (&raw mut value).cast(),
                &raw mut bytes,
                std::ptr::null_mut(),
                0,
            )
        };
        usize::try_from(value).ok().filter(|value| status == 0 && *value > 0)
    }

    let levels = [
        [c"hw.perflevel1.l1dcachesize", c"hw.perflevel1.l2cachesize", c"hw.perflevel1.cpusperl2"],
        [c"hw.perflevel0.l1dcachesize", c"hw.perflevel0.l2cachesize", c"hw.perflevel0.cpusperl2"],
        [c"hw.l1dcachesize", c"hw.l2cachesize", c"hw.activecpu"],
    ];
    levels.into_iter().find_map(|[near, own, cores]| {
        let own = read(own)? / read(cores).unwrap_or(1);
        Some(Caches { near: read(near)?, own, shared: own })
    })
}

#[cfg(not(target_os = "macos"))]
fn from_system() -> Option<Caches> {
    None
}

/// Reads the sizes with CPUID: AMD's leaf 0x8000001D or Intel's leaf 4, which have one form ("AMD64
/// Architecture Programmer's Manual", volume 3, appendix E; "Intel 64 and IA-32 Architectures
/// Software Developer's Manual", volume 2, CPUID).
#[cfg(target_arch = "x86_64")]
fn from_processor() -> Option<Caches> {
    use std::arch::x86_64::{__cpuid, __cpuid_count};

    /// Bit of leaf 0x80000001's ECX: leaf 0x8000001D exists.
    const TOPOLOGY_EXTENSIONS: u32 = 1 << 22;
    let has_amd_leaf = __cpuid(0x8000_0000).eax >= 0x8000_001d
        && __cpuid(0x8000_0001).ecx & TOPOLOGY_EXTENSIONS != 0;
    let leaf = match has_amd_leaf {
        true => 0x8000_001d,
        false if __cpuid(0).eax >= 4 => 4,
        false => return None,
    };
    let levels: Vec<Level> = (0..8)
        .map_while(|index| {
            let found = __cpuid_count(leaf, index);
            let kind = found.eax & 31;
            let field =
                |value: u32, from: u32, bits: u32| (value >> from & ((1 << bits) - 1)) as usize + 1;
            (kind != 0).then(|| Level {
                level: (found.eax >> 5 & 7) as usize,
                has_data: kind != 2,
                size: field(found.ebx, 22, 10)
                    * field(found.ebx, 12, 10)
                    * field(found.ebx, 0, 12)
                    * (found.ecx as usize + 1),
                sharers: field(found.eax, 14, 12),
            })
        })
        .collect();
    // The first level belongs to one core, so its sharers are the core's threads.
    let threads = levels.iter().find(|level| level.level == 1 && level.has_data)?.sharers;
    Level::per_core(levels.into_iter(), threads)
}

#[cfg(not(target_arch = "x86_64"))]
fn from_processor() -> Option<Caches> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    fn parse(text: &str) -> Option<Caches> {
        Caches::parse(OsStr::new(text))
    }

    #[test]
    fn variable_holds_three_ascending_sizes() {
        let expected = Caches { near: 32 << 10, own: 512 << 10, shared: 4 << 20 };
        assert_eq!(parse("32K,512K,4M"), Some(expected));
        assert_eq!(parse("32768, 524288 ,4096k"), Some(expected));
        assert_eq!(parse(&expected.to_string()), Some(expected));
        for text in ["", "32K", "32K,512K", "32K,512K,4M,8M", "32K,16K,4M", "1K,512K,4M", "a,b,c"] {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(parse("32K,512K,99999999999999999999G"), None);
    }

    #[test]
    fn malformed_variable_is_named_with_an_example() {
        let error = UnknownCaches { value: "big".into() }.to_string();
        assert!(error.contains("SARDONYX_CACHES is \"big\""), "{error}");
        assert!(error.contains("32K,512K,4M"), "{error}");
    }

    /// Directory in the form of `/sys/devices/system/cpu`.
    struct Sysfs(PathBuf);

    impl Sysfs {
        fn new(name: &str) -> Sysfs {
            let root = std::env::temp_dir().join(format!("caches-{}-{name}", std::process::id()));
            Sysfs(root)
        }

        fn write(path: PathBuf, text: &str) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }

        /// Adds a processor whose core has the `siblings`, with caches as level, type, size and
        /// sharers.
        fn add(&self, processor: usize, siblings: &str, caches: &[[&str; 4]]) {
            let directory = self.0.join(format!("cpu{processor}"));
            Sysfs::write(directory.join("topology/thread_siblings_list"), siblings);
            for (index, cache) in caches.iter().enumerate() {
                let of = directory.join(format!("cache/index{index}"));
                let names = ["level", "type", "size", "shared_cpu_list"];
                for (name, value) in names.iter().zip(cache) {
                    Sysfs::write(of.join(name), value);
                }
            }
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn last_level_is_divided_among_cores_not_threads() {
        let sysfs = Sysfs::new("smt");
        sysfs.add(
            0,
            "0,8",
            &[
                ["1", "Data", "32K", "0,8"],
                ["1", "Instruction", "64K", "0,8"],
                ["2", "Unified", "512K", "0,8"],
                ["3", "Unified", "32768K", "0-15"],
            ],
        );
        let found = Caches::from_sysfs(&sysfs.0, &[0]);
        assert_eq!(found, Some(Caches { near: 32 << 10, own: 512 << 10, shared: 4 << 20 }));
    }

    #[test]
    fn hybrid_processor_counts_as_its_smaller_cores() {
        let sysfs = Sysfs::new("hybrid");
        let large = [
            ["1", "Data", "48K", "0-1"],
            ["2", "Unified", "1280K", "0-1"],
            ["3", "Unified", "24M", "0-19"],
        ];
        let small = [
            ["1", "Data", "32K", "16"],
            ["2", "Unified", "2048K", "16-19"],
            ["3", "Unified", "24M", "0-19"],
        ];
        sysfs.add(0, "0-1", &large);
        sysfs.add(19, "19", &small);
        let found = Caches::from_sysfs(&sysfs.0, &[0, 19]).unwrap();
        assert_eq!((found.near, found.own), (32 << 10, 512 << 10));
        assert_eq!(found.shared, (24 << 20) / 20);
    }

    #[test]
    fn two_levels_are_enough_and_damaged_entries_are_not_there() {
        let sysfs = Sysfs::new("two");
        sysfs.add(3, "3", &[["1", "Data", "64K", "3"], ["2", "Unified", "4M", "0-3"]]);
        sysfs.add(4, "4", &[["1", "Data", "much", "4"], ["2", "Unified", "4M", "0-3"]]);
        let found = Caches::from_sysfs(&sysfs.0, &[3]);
        assert_eq!(found, Some(Caches { near: 64 << 10, own: 1 << 20, shared: 1 << 20 }));
        assert_eq!(Caches::from_sysfs(&sysfs.0, &[4]), None);
        assert_eq!(Caches::from_sysfs(&sysfs.0, &[5]), None);
    }

    #[test]
    fn lists_of_processors_are_bounded() {
        assert_eq!(parse_list("0-3,8"), [0, 1, 2, 3, 8]);
        assert_eq!(parse_list("x,2-1,7"), [7]);
        assert!(parse_list("0-99999999999").len() <= 1 << 16);
    }

    #[test]
    fn sizes_of_this_machine_are_plausible() {
        for found in [Some(Caches::of_machine()), from_processor()].into_iter().flatten() {
            assert!(found.is_plausible(), "{found}");
        }
    }
}
