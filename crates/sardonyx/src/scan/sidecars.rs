//! Checks of data files and of the references into them: location, kind, size, and overlapping
//! ranges. Content is read only to compare checksums, if the options enable it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use sardonyx_model::Model;
use sardonyx_proto::shown;

use super::ScanOptions;
use super::codes;
use super::location;
use super::places::Stored;
use super::report::{Findings, ScanFacts, ScannedFile};
use super::tensors::Claim;
use crate::beneath::{Identity, Refusal};
use crate::external::{DataFiles, OpenFailure, compute_sha1};

/// Maximum number of data files of a model that are checked.
const LOOKED_AT: usize = 100_000;
/// Maximum number of data files in the report of a scan.
const LISTED: usize = 1000;
/// Alignment in bytes of data file offsets at which a reader can memory-map each tensor
/// individually.
const PAGE: u64 = 4096;
/// Gap between tensors of a data file, in bytes, that is not taken for padding: writers align to 64
/// KiB so that each tensor can be memory-mapped on every system.
const PADDING: u64 = 64 << 10;
/// Number of bytes by which the data of external tensors may exceed the data files without a
/// finding.
const SLACK: u64 = 1 << 30;

/// Data files of a model, collected while all stored tensors are visited.
pub(super) struct Sidecars<'m> {
    model: &'m Model,
    /// Index in `files` of each location.
    by_location: HashMap<Vec<u8>, usize>,
    files: Vec<Sidecar<'m>>,
    /// Number of tensors whose data file offset is not a multiple of [`PAGE`].
    unaligned: u64,
    /// Total size in bytes of the data that external tensors refer to.
    claimed: u64,
}

/// Location of a data file, with the tensors that refer to it.
struct Sidecar<'m> {
    location: Vec<u8>,
    /// Number of tensors that refer to the file.
    tensors: u64,
    /// First tensor that refers to the file.
    first: Stored<'m>,
    ranges: Vec<Range<'m>>,
    /// SHA-1 that the first tensor with a `checksum` declares; `None` without a `checksum`.
    checksum: Option<String>,
}

/// Range of bytes in a data file that a tensor refers to.
#[derive(Clone, Copy)]
struct Range<'m> {
    start: u64,
    /// Length of the range in bytes; `None` if it extends to the end of the file.
    len: Option<u64>,
    tensor: Stored<'m>,
}

/// Values of the standard keys in a tensor's `external_data`; the last value of a duplicate key.
#[derive(Default)]
struct Entries<'m> {
    location: Option<&'m [u8]>,
    offset: Option<&'m [u8]>,
    length: Option<&'m [u8]>,
    checksum: Option<&'m [u8]>,
}

impl<'m> Sidecars<'m> {
    /// Makes an empty collection of the data files of `model`.
    pub(super) fn new(model: &'m Model) -> Sidecars<'m> {
        Sidecars { model, by_location: HashMap::new(), files: Vec::new(), unaligned: 0, claimed: 0 }
    }

    /// Adds a tensor whose data is in a data file, and checks its `external_data`.
    pub(super) fn add(&mut self, stored: &Stored<'m>, claim: Claim, found: &mut Findings) {
        let model = self.model;
        let entries = self.read_entries(stored, found);
        let Some(location) = entries.location else {
            found.add(&codes::LOCATION_MISSING, || {
                let message = "the tensor's values are external, but no location is set";
                (stored.describe_place(model), message.to_string())
            });
            return;
        };
        let offset = match entries.offset.map(parse_number) {
            None => Some(0),
            Some(Some(offset)) => Some(offset),
            Some(None) => {
                found.add(&codes::BAD_OFFSET, || {
                    let text = shown(entries.offset.unwrap_or_default());
                    let message = format!("the tensor's offset '{text}' is not a number of bytes");
                    (stored.describe_place(model), message)
                });
                None
            }
        };
        let length = match entries.length.map(parse_number) {
            None => Some(None),
            Some(Some(length)) => Some(Some(length)),
            Some(None) => {
                found.add(&codes::BAD_LENGTH, || {
                    let text = shown(entries.length.unwrap_or_default());
                    let message = format!("the tensor's length '{text}' is not a number of bytes");
                    (stored.describe_place(model), message)
                });
                None
            }
        };
        let range = offset.zip(length).map(|(start, length)| Range {
            start,
            len: length.or(claim.bytes),
            tensor: *stored,
        });
        let checksum = entries.checksum.map(show_checksum);
        self.add_reference(location, stored, range, checksum, found);
    }

    /// Reads the `external_data` of a tensor, and reports duplicate keys.
    fn read_entries(&self, stored: &Stored<'m>, found: &mut Findings) -> Entries<'m> {
        let model = self.model;
        let mut entries = Entries::default();
        for entry in &stored.tensor.external_data {
            let key = model.maybe_text(entry.key).unwrap_or_default();
            let slot = match key {
                b"location" => &mut entries.location,
                b"offset" => &mut entries.offset,
                b"length" => &mut entries.length,
                b"checksum" => &mut entries.checksum,
                _ => continue,
            };
            // The model checker reports duplicate keys too, but does not name the tensor.
            if slot.replace(model.maybe_text(entry.value).unwrap_or_default()).is_some() {
                found.add(&codes::DUPLICATE_KEY, || {
                    let message =
                        format!("external_data has the key '{}' more than once", shown(key));
                    (stored.describe_place(model), message)
                });
            }
        }
        entries
    }

    /// Records a tensor's range and checksum in the data file at `location`.
    fn add_reference(
        &mut self,
        location: &[u8],
        stored: &Stored<'m>,
        range: Option<Range<'m>>,
        checksum: Option<String>,
        found: &mut Findings,
    ) {
        let index = match self.by_location.get(location) {
            Some(index) => *index,
            None => {
                let index = self.files.len();
                self.by_location.insert(location.to_vec(), index);
                self.files.push(Sidecar {
                    location: location.to_vec(),
                    tensors: 0,
                    first: *stored,
                    ranges: Vec::new(),
                    checksum: None,
                });
                index
            }
        };
        let file = &mut self.files[index];
        file.tensors += 1;
        if let Some(range) = range {
            self.unaligned += u64::from(!range.start.is_multiple_of(PAGE));
            self.claimed = self.claimed.saturating_add(range.len.unwrap_or(0));
            file.ranges.push(range);
        }
        let Some(checksum) = checksum else { return };
        match &file.checksum {
            None => {
                if checksum.len() != 40 || !checksum.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                    found.add(&codes::CHECKSUM_MALFORMED, || {
                        let message = format!("the checksum '{checksum}' is not a SHA-1");
                        (file.first.describe_place(self.model), message)
                    });
                }
                file.checksum = Some(checksum);
            }
            Some(known) if !known.eq_ignore_ascii_case(&checksum) => {
                found.add(&codes::CHECKSUM_CONFLICT, || {
                    let location = shown(location);
                    let message = format!("the data file '{location}' has the SHA-1 {known} for one tensor and {checksum} for another");
                    (stored.describe_place(self.model), message)
                });
            }
            Some(_) => {}
        }
    }

    /// Checks all collected data files, and compares their sizes and checksums with the tensors.
    pub(super) fn finish(
        mut self,
        data: &DataFiles,
        options: &ScanOptions,
        facts: &mut ScanFacts,
        found: &mut Findings,
    ) {
        if self.unaligned > 0 {
            found.add(&codes::UNALIGNED, || {
                let message = format!(
                    "{} tensors do not start at a multiple of {PAGE} bytes in a data file",
                    self.unaligned
                );
                (String::new(), message)
            });
        }
        if data.directory().is_none() && !self.files.is_empty() {
            found.add(&codes::NOT_LOOKED_AT, || {
                (
                    String::new(),
                    "data files are not checked, as their directory is not known".to_string(),
                )
            });
        }
        if self.files.len() > LOOKED_AT {
            found.add(&codes::TOO_MANY_DATA_FILES, || {
                (String::new(), format!("the model has more than {LOOKED_AT} data files"))
            });
        }
        let mut groups = Groups::default();
        for index in 0..self.files.len() {
            self.check_file(index, data, options, facts, &mut groups, found);
        }
        facts.outside_claimed = self.claimed;
        facts.outside_present = groups.sizes.iter().copied().fold(0, u64::saturating_add);
        let complete = groups.unknown == 0;
        if complete
            && self.claimed / 2 > facts.outside_present
            && self.claimed - facts.outside_present > SLACK
        {
            found.add(&codes::CLAIMS, || {
                let present = facts.outside_present;
                let message = format!(
                    "external tensors claim {} bytes in total, but the data files have {present}",
                    self.claimed
                );
                (String::new(), message)
            });
        }
        for group in groups.members {
            self.check_ranges(&group, found);
        }
    }

    /// Checks the location and file type of the data file at `index`, and that each tensor's range
    /// is within its size.
    fn check_file(
        &mut self,
        index: usize,
        data: &DataFiles,
        options: &ScanOptions,
        facts: &mut ScanFacts,
        groups: &mut Groups,
        found: &mut Findings,
    ) {
        let model = self.model;
        let file = &mut self.files[index];
        let problems = location::find_problems(&file.location);
        let is_rejected = problems.iter().any(|(code, _)| code.severity == super::Severity::Error);
        let name = shown(&file.location);
        for (code, what) in problems {
            found.add(code, || {
                (file.first.describe_place(model), format!("the location '{name}' {what}"))
            });
        }
        let opened = if !is_rejected && index < LOOKED_AT && data.directory().is_some() {
            open_file(file, &name, data, options, model, found)
        } else {
            None
        };
        let size = opened.as_ref().map(|(size, _)| *size);
        if facts.data_files.len() < LISTED {
            facts.data_files.push(ScannedFile {
                location: name.clone(),
                size,
                tensors: file.tensors,
            });
        }
        for range in &mut file.ranges {
            check_range(range, size, &name, model, found);
        }
        let key = match opened {
            Some((size, Some(identity))) => Key::File(identity, size),
            _ => Key::Path(location::normalize(&String::from_utf8_lossy(&file.location)), size),
        };
        if let Some(other) = groups.add(key, index) {
            found.add(&codes::SAME_FILE, || {
                let other = shown(&self.files[other].location);
                (name, format!("the data file is the same file as '{other}'"))
            });
        }
    }

    /// Reports overlapping and shared ranges of tensors in one data file, which may have several
    /// locations, and bytes that no tensor refers to.
    fn check_ranges(&self, group: &Group, found: &mut Findings) {
        let members = group.members.iter();
        let mut ranges: Vec<(u64, u64, &Range<'m>)> = members
            .flat_map(|index| &self.files[*index].ranges)
            .filter_map(|range| Some((range.start, range.start.checked_add(range.len?)?, range)))
            .filter(|(start, end, _)| start < end)
            .collect();
        ranges.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
        let location = &self.files[group.members[0]].location;
        let (mut shared, mut last) = (0u64, None::<(u64, u64, &Range<'m>)>);
        for range in &ranges {
            let (start, end, tensor) = *range;
            match last {
                Some((s, e, _)) if (s, e) == (start, end) => shared += 1,
                Some((s, e, other)) if start < e => found.add(&codes::OVERLAP, || {
                    let other = other.tensor.describe_place(self.model);
                    let message = format!(
                        "the tensor's bytes {start}..{end} of '{}' overlap the bytes {s}..{e} of {other}",
                        shown(location)
                    );
                    (tensor.tensor.describe_place(self.model), message)
                }),
                _ => {}
            }
            if last.is_none_or(|(_, e, _)| end > e) {
                last = Some(*range);
            }
        }
        if shared > 0 {
            found.add(&codes::SHARED_RANGE, || {
                (shown(location), format!("{shared} tensors share the bytes of another tensor"))
            });
        }
        let ends = ranges.iter().map(|(start, end, _)| (*start, *end));
        let unused = group.size.map_or(0, |size| count_unused(ends, size));
        if unused > 0 {
            found.add(&codes::UNREFERENCED, || {
                (shown(location), format!("{unused} bytes of the data file belong to no tensor"))
            });
        }
    }
}

/// Counts the bytes of a data file of `size` bytes outside of all ranges, whose starts ascend. Gaps
/// below [`PADDING`] do not count.
fn count_unused(ranges: impl Iterator<Item = (u64, u64)>, size: u64) -> u64 {
    let (mut unused, mut reached) = (0, 0);
    for (start, end) in ranges.chain([(size, size)]) {
        let gap = start.min(size).saturating_sub(reached);
        if gap >= PADDING {
            unused += gap;
        }
        reached = reached.max(end);
    }
    unused
}

/// Identity of a data file, by which several locations are recognized as one file.
#[derive(PartialEq, Eq, Hash, Clone)]
enum Key {
    /// Identity (device and inode) and size of an opened file.
    File(Identity, u64),
    /// Normalized path of a file that was not opened, and its size if known.
    Path(String, Option<u64>),
}

/// Locations that refer to one data file.
struct Group {
    /// Indices of the locations in [`Sidecars::files`].
    members: Vec<usize>,
    /// Size of the file in bytes; `None` if not known.
    size: Option<u64>,
}

/// All data files of a model, with their locations grouped by file.
#[derive(Default)]
struct Groups {
    by_key: HashMap<Key, usize>,
    members: Vec<Group>,
    /// Sizes of the distinct data files, in bytes.
    sizes: Vec<u64>,
    /// Number of distinct data files whose size is not known.
    unknown: usize,
}

impl Groups {
    /// Adds the location with index `index` to the group of its data file `key`. Returns the index
    /// of the file's first location; `None` if the file is new.
    fn add(&mut self, key: Key, index: usize) -> Option<usize> {
        let size = match &key {
            Key::File(_, size) => Some(*size),
            Key::Path(_, size) => *size,
        };
        match self.by_key.entry(key) {
            Entry::Occupied(known) => {
                let group = &mut self.members[*known.get()];
                group.members.push(index);
                Some(group.members[0])
            }
            Entry::Vacant(new) => {
                new.insert(self.members.len());
                self.members.push(Group { members: vec![index], size });
                match size {
                    Some(size) => self.sizes.push(size),
                    None => self.unknown += 1,
                }
                None
            }
        }
    }
}

/// Opens a data file and returns its size in bytes and its identity; `None`, with a finding, if the
/// file must not or cannot be read. Compares the checksum if the options enable it.
fn open_file(
    file: &Sidecar<'_>,
    name: &str,
    data: &DataFiles,
    options: &ScanOptions,
    model: &Model,
    found: &mut Findings,
) -> Option<(u64, Option<Identity>)> {
    let location = std::str::from_utf8(&file.location).ok()?;
    let seen = match data.open(location) {
        Ok(seen) => seen,
        Err(missed) => {
            let (code, what) = match missed {
                OpenFailure::Location(_) => {
                    (&codes::LOCATION_ESCAPES, "has a location that is not allowed")
                }
                OpenFailure::Missing(_) => (&codes::DATA_FILE_MISSING, "does not exist"),
                OpenFailure::DanglingLink => {
                    (&codes::DATA_FILE_MISSING, "is a link to a file that does not exist")
                }
                OpenFailure::Outside(_) => {
                    (&codes::LINK_OUTSIDE, "is a link to outside of the model's directory")
                }
                OpenFailure::Refused(Refusal::Link) => (&codes::LINK_OUTSIDE, "is a link"),
                OpenFailure::Refused(Refusal::Kind(kind)) => {
                    found.add(&codes::NOT_A_FILE, || {
                        (
                            file.first.describe_place(model),
                            format!("the data file '{name}' is {kind}"),
                        )
                    });
                    return None;
                }
                OpenFailure::Refused(Refusal::HardLink) => {
                    (&codes::HARD_LINK, "has more than one hard link")
                }
                OpenFailure::Refused(Refusal::Io(error)) => {
                    found.add(&codes::DATA_FILE_UNREADABLE, || {
                        (
                            file.first.describe_place(model),
                            format!("the data file '{name}' cannot be opened: {error}"),
                        )
                    });
                    return None;
                }
            };
            found.add(code, || {
                (file.first.describe_place(model), format!("the data file '{name}' {what}"))
            });
            return None;
        }
    };
    if seen.through_link {
        found.add(&codes::LINK_INSIDE, || {
            (name.to_string(), "the data file is a link to a readable file".to_string())
        });
    }
    if let Some(checksum) = file.checksum.as_ref().filter(|_| options.checksums) {
        match compute_sha1(&seen.file) {
            Ok(digest) if digest.eq_ignore_ascii_case(checksum) => {}
            Ok(digest) => found.add(&codes::CHECKSUM_MISMATCH, || {
                let message = format!(
                    "the data file has the SHA-1 {digest}, but the model declares {checksum}"
                );
                (name.to_string(), message)
            }),
            Err(error) => found.add(&codes::DATA_FILE_UNREADABLE, || {
                (name.to_string(), format!("the data file cannot be read: {error}"))
            }),
        }
    }
    Some((seen.len, seen.identity))
}

/// Checks that a tensor's range is within its data file of `size` bytes, and sets the length of a
/// range that extends to the end of the file.
fn check_range(
    range: &mut Range<'_>,
    size: Option<u64>,
    name: &str,
    model: &Model,
    found: &mut Findings,
) {
    let start = range.start;
    let Some(end) = start.checked_add(range.len.unwrap_or(0)) else {
        found.add(&codes::RANGE_OVERFLOW, || {
            let len = range.len.unwrap_or(0);
            let message = format!("the tensor's offset {start} plus length {len} overflows");
            (range.tensor.describe_place(model), message)
        });
        return;
    };
    let Some(size) = size else { return };
    if end > size {
        found.add(&codes::RANGE_BEYOND_END, || {
            let message = format!(
                "the tensor claims the bytes {start}..{end} of '{name}', which has {size} bytes"
            );
            (range.tensor.describe_place(model), message)
        });
    } else if range.len.is_none() {
        range.len = Some(size - start);
    }
}

/// Parses a decimal number of digits only; `None` for other text or an overflow. Signs and blanks
/// are rejected, as readers treat them differently.
fn parse_number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Converts a checksum into text for messages, without blanks around it.
fn show_checksum(text: &[u8]) -> String {
    shown(text.trim_ascii())
}
