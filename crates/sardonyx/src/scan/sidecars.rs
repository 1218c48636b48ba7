//! References into data files, and these files: their sizes and kinds, not their content unless
//! digests are asked for.

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
use crate::external::{DataFiles, OpenFailure, sha1_of};

/// Data files that are looked at.
const LOOKED_AT: usize = 100_000;
/// Data files that the report lists.
const LISTED: usize = 1000;
/// What offsets are multiples of when tensors can be mapped each for itself.
const PAGE: u64 = 4096;
/// The largest padding that writers leave between tensors, so that each can be mapped for itself on
/// every system.
const PADDING: u64 = 64 << 10;
/// How much more than the files hold tensors may claim before that is worth a word.
const SLACK: u64 = 1 << 30;

/// Everything about data files that is known once all tensors have been seen.
pub(super) struct Sidecars<'m> {
    model: &'m Model,
    by_location: HashMap<Vec<u8>, usize>,
    files: Vec<Sidecar<'m>>,
    unaligned: u64,
    claimed: u64,
}

/// A location and what tensors say about it.
struct Sidecar<'m> {
    location: Vec<u8>,
    tensors: u64,
    /// The tensor that names it first.
    first: Stored<'m>,
    ranges: Vec<Range<'m>>,
    /// The digest that the model gives.
    checksum: Option<String>,
}

/// What a tensor takes of a data file.
#[derive(Clone, Copy)]
struct Range<'m> {
    start: u64,
    /// `None`: to the end of the file, as far as the tensor says.
    len: Option<u64>,
    tensor: Stored<'m>,
}

/// The entries of `external_data`, the last of each key.
#[derive(Default)]
struct Entries<'m> {
    location: Option<&'m [u8]>,
    offset: Option<&'m [u8]>,
    length: Option<&'m [u8]>,
    checksum: Option<&'m [u8]>,
}

impl<'m> Sidecars<'m> {
    pub(super) fn new(model: &'m Model) -> Sidecars<'m> {
        Sidecars { model, by_location: HashMap::new(), files: Vec::new(), unaligned: 0, claimed: 0 }
    }

    /// Takes in a tensor whose values lie outside the model.
    pub(super) fn add(&mut self, stored: &Stored<'m>, claim: Claim, found: &mut Findings) {
        let model = self.model;
        let place = || stored.place(model);
        let entries = self.entries(stored, found);
        let Some(location) = entries.location else {
            let message = || "its values are external, but no location is set".to_string();
            found.add(&codes::LOCATION_MISSING, || (place(), message()));
            return;
        };
        let offset = match entries.offset.map(number) {
            None => Some(0),
            Some(Some(offset)) => Some(offset),
            Some(None) => {
                let text = shown(entries.offset.unwrap_or_default());
                let message = || format!("its offset '{text}' is not a number of bytes");
                found.add(&codes::BAD_OFFSET, || (place(), message()));
                None
            }
        };
        let length = match entries.length.map(number) {
            None => Some(None),
            Some(Some(length)) => Some(Some(length)),
            Some(None) => {
                let text = shown(entries.length.unwrap_or_default());
                let message = || format!("its length '{text}' is not a number of bytes");
                found.add(&codes::BAD_LENGTH, || (place(), message()));
                None
            }
        };
        let range = offset.zip(length).map(|(start, length)| Range {
            start,
            len: length.or(claim.bytes),
            tensor: *stored,
        });
        let checksum = entries.checksum.map(shown_checksum);
        self.file(location, stored, range, checksum, found);
    }

    fn entries(&self, stored: &Stored<'m>, found: &mut Findings) -> Entries<'m> {
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
            // The checker says which list has the key twice, and not of which tensor that is.
            if slot.replace(model.maybe_text(entry.value).unwrap_or_default()).is_some() {
                found.add(&codes::DUPLICATE_KEY, || {
                    let message =
                        format!("external_data has the key '{}' more than once", shown(key));
                    (stored.place(model), message)
                });
            }
        }
        entries
    }

    /// Notes what a tensor says about a location.
    fn file(
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
                        let message = format!("'{checksum}' is not a SHA-1");
                        (file.first.place(self.model), message)
                    });
                }
                file.checksum = Some(checksum);
            }
            Some(known) if !known.eq_ignore_ascii_case(&checksum) => {
                found.add(&codes::CHECKSUM_CONFLICT, || {
                    let location = shown(location);
                    let message = format!("'{location}' has the SHA-1 {known} for one tensor and {checksum} for this one");
                    (stored.place(self.model), message)
                });
            }
            Some(_) => {}
        }
    }

    /// Looks at the files and compares them with what tensors say.
    pub(super) fn finish(
        mut self,
        data: &DataFiles,
        options: &ScanOptions,
        facts: &mut ScanFacts,
        found: &mut Findings,
    ) {
        if self.unaligned > 0 {
            let message =
                || format!("{} tensors do not start at a multiple of {PAGE}", self.unaligned);
            found.add(&codes::UNALIGNED, || (String::new(), message()));
        }
        if data.directory().is_none() && !self.files.is_empty() {
            let message = || "there is no directory to look for data files in".to_string();
            found.add(&codes::NOT_LOOKED_AT, || (String::new(), message()));
        }
        if self.files.len() > LOOKED_AT {
            let message = || format!("there are more than {LOOKED_AT} data files");
            found.add(&codes::TOO_MANY_DATA_FILES, || (String::new(), message()));
        }
        let mut groups = Groups::default();
        for index in 0..self.files.len() {
            self.look(index, data, options, facts, &mut groups, found);
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
                    "external tensors have {} bytes in total, but the files have {present}",
                    self.claimed
                );
                (String::new(), message)
            });
        }
        for group in groups.members {
            self.check_ranges(&group, found);
        }
    }

    /// Looks at a file, and checks each range against its size.
    fn look(
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
        let first = || file.first.place(model);
        let problems = location::problems(&file.location);
        let refused = problems.iter().any(|(code, _)| code.severity == super::Severity::Error);
        let name = shown(&file.location);
        for (code, what) in problems {
            found.add(code, || (first(), format!("its location '{name}' {what}")));
        }
        let looked = if !refused && index < LOOKED_AT && data.directory().is_some() {
            look_at(file, &name, data, options, model, found)
        } else {
            None
        };
        let size = looked.as_ref().map(|(size, _)| *size);
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
        let key = match looked {
            Some((size, Some(identity))) => Key::File(identity, size),
            _ => Key::Path(location::normal(&String::from_utf8_lossy(&file.location)), size),
        };
        if let Some(other) = groups.add(key, index) {
            found.add(&codes::SAME_FILE, || {
                let other = shown(&self.files[other].location);
                (name, format!("it is the same file as '{other}'"))
            });
        }
    }

    /// Looks for ranges that meet, and for bytes that no range has, in a file with one or several
    /// locations.
    fn check_ranges(&self, group: &Group, found: &mut Findings) {
        let members = group.members.iter();
        let mut ranges: Vec<(u64, u64, &Range<'m>)> = members
            .flat_map(|index| &self.files[*index].ranges)
            .filter_map(|range| Some((range.start, range.start.checked_add(range.len?)?, range)))
            .filter(|(start, end, _)| start < end)
            .collect();
        ranges.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
        let name = || shown(&self.files[group.members[0]].location);
        let (mut shared, mut last) = (0u64, None::<(u64, u64, &Range<'m>)>);
        for range in &ranges {
            let (start, end, tensor) = *range;
            match last {
                Some((s, e, _)) if (s, e) == (start, end) => shared += 1,
                Some((s, e, other)) if start < e => found.add(&codes::OVERLAP, || {
                    let other = other.tensor.place(self.model);
                    let message = format!(
                        "its bytes {start}..{end} of '{}' overlap the bytes {s}..{e} of {other}",
                        name()
                    );
                    (tensor.tensor.place(self.model), message)
                }),
                _ => {}
            }
            if last.is_none_or(|(_, e, _)| end > e) {
                last = Some(*range);
            }
        }
        if shared > 0 {
            let message = || format!("{shared} tensors share values with another tensor");
            found.add(&codes::SHARED_RANGE, || (name(), message()));
        }
        let ends = ranges.iter().map(|(start, end, _)| (*start, *end));
        let unused = group.size.map_or(0, |size| unused(ends, size));
        if unused > 0 {
            let message = || format!("{unused} bytes belong to no tensor");
            found.add(&codes::UNREFERENCED, || (name(), message()));
        }
    }
}

/// Bytes of a file in none of the ranges, which ascend, without what may be padding between them.
fn unused(ranges: impl Iterator<Item = (u64, u64)>, size: u64) -> u64 {
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

/// What makes two locations one file.
#[derive(PartialEq, Eq, Hash, Clone)]
enum Key {
    File(Identity, u64),
    Path(String, Option<u64>),
}

/// Locations that are one file.
struct Group {
    members: Vec<usize>,
    size: Option<u64>,
}

#[derive(Default)]
struct Groups {
    by_key: HashMap<Key, usize>,
    members: Vec<Group>,
    /// Sizes of different files.
    sizes: Vec<u64>,
    /// Files whose size is not known.
    unknown: usize,
}

impl Groups {
    /// Adds a location; another one that is the same file.
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

/// Size and identity of a file, if it is one that may be read. Compares its digest on request.
fn look_at(
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
                OpenFailure::Location(_) => (&codes::LOCATION_ESCAPES, "is rejected"),
                OpenFailure::Missing(_) => (&codes::DATA_FILE_MISSING, "does not exist"),
                OpenFailure::DanglingLink => {
                    (&codes::DATA_FILE_MISSING, "is a link to a file that does not exist")
                }
                OpenFailure::Outside(_) => {
                    (&codes::LINK_OUTSIDE, "is a link to outside of the model's directory")
                }
                OpenFailure::Refused(Refusal::Link) => (&codes::LINK_OUTSIDE, "is a link"),
                OpenFailure::Refused(Refusal::Kind(kind)) => {
                    let message = || format!("'{name}' is {kind}");
                    found.add(&codes::NOT_A_FILE, || (file.first.place(model), message()));
                    return None;
                }
                OpenFailure::Refused(Refusal::HardLink) => {
                    (&codes::HARD_LINK, "has more than one hard link")
                }
                OpenFailure::Refused(Refusal::Io(error)) => {
                    let message = || format!("'{name}' cannot be opened: {error}");
                    found
                        .add(&codes::DATA_FILE_UNREADABLE, || (file.first.place(model), message()));
                    return None;
                }
            };
            found.add(code, || (file.first.place(model), format!("'{name}' {what}")));
            return None;
        }
    };
    if seen.through_link {
        let message = || "it is a link to a readable file".to_string();
        found.add(&codes::LINK_INSIDE, || (name.to_string(), message()));
    }
    if let Some(checksum) = file.checksum.as_ref().filter(|_| options.checksums) {
        match sha1_of(&seen.file) {
            Ok(digest) if digest.eq_ignore_ascii_case(checksum) => {}
            Ok(digest) => found.add(&codes::CHECKSUM_MISMATCH, || {
                let message = format!("its SHA-1 is {digest}, but the model has {checksum}");
                (name.to_string(), message)
            }),
            Err(error) => found.add(&codes::DATA_FILE_UNREADABLE, || {
                (name.to_string(), format!("it cannot be read: {error}"))
            }),
        }
    }
    Some((seen.len, seen.identity))
}

/// Checks a range against the size of its file, and completes it where it goes to the end.
fn check_range(
    range: &mut Range<'_>,
    size: Option<u64>,
    name: &str,
    model: &Model,
    found: &mut Findings,
) {
    let place = || range.tensor.place(model);
    let start = range.start;
    let Some(end) = start.checked_add(range.len.unwrap_or(0)) else {
        let len = range.len.unwrap_or(0);
        let message = || format!("its offset {start} plus length {len} overflows");
        found.add(&codes::RANGE_OVERFLOW, || (place(), message()));
        return;
    };
    let Some(size) = size else { return };
    if end > size {
        found.add(&codes::RANGE_BEYOND_END, || {
            let message =
                format!("it claims the bytes {start}..{end} of '{name}', which has {size} bytes");
            (place(), message)
        });
    } else if range.len.is_none() {
        range.len = Some(size - start);
    }
}

/// A decimal number as all readers take it: no sign, no blanks.
fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

fn shown_checksum(text: &[u8]) -> String {
    shown(text.trim_ascii())
}
