//! Replacing a model and its data files so that a crash at any moment leaves the old ones or the
//! new ones, whole.
//!
//! New data files are written without a name where the system allows it (`O_TMPFILE`), get names
//! that the old model does not use, then the new model takes the old one's name, and only then the
//! old data files are removed. Whatever a crash leaves in the directory is listed, with the
//! identity of each file, in a note beside the model, which the next save in the directory reads:
//! it removes what is still the same file and belongs to no model.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sardonyx_model as graph;
use sha1::{Digest, Sha1};

use super::layout::{self, PlannedFile};
use super::{SaveOptions, SaveReport, SavedFile, Weights};
use crate::beneath::{Directory, Identity, Refusal, identity};
use crate::error::{Error, ErrorKind};
use crate::external::{HashWriter, check_location, directory_of, hex};
use crate::form::Form;
use crate::load::{Referring, referring};
use crate::mapping;
use crate::model::Model;
use crate::open::{io_error, shown};
use crate::stored;
use crate::unfinished::{Unfinished, remove_abandoned, remove_of_earlier_releases};

/// Called with a name for each change of the disk before it is made.
pub(crate) type Hook = dyn Fn(&str) -> io::Result<()> + Send + Sync;

/// How much is written at a time and between two reports of progress. With pieces of 8 MiB
/// saving 1 GB was slower than `cp`, with these it is faster.
const CHUNK_BYTES: usize = 1 << 20;

/// End of the name of a note. Before it are a dot and the name of the model.
const NOTE_SUFFIX: &str = ".replacing";

/// Names of data files with larger numbers are not recognised as having been made for the same
/// base.
const MOST_ATTEMPTS: u32 = 100;

/// A save in progress.
struct Saving<'a> {
    options: &'a SaveOptions,
    path: &'a Path,
    directory: Directory,
    /// The file's name without directory.
    name: &'a OsStr,
    written: u64,
    total: u64,
    /// Whether no other process gives names to files of the directory.
    is_locked: bool,
}

/// A data file on its way.
struct NewFile {
    location: String,
    /// `None` if the file was there already, byte for byte.
    pending: Option<Unfinished>,
    checksum: Option<String>,
}

/// The data files of a model that is to be replaced.
#[derive(Default)]
struct Old {
    locations: BTreeSet<String>,
}

pub(super) fn save(model: &Model, path: &Path, options: &SaveOptions) -> Result<SaveReport, Error> {
    let failed = |error| io_error("cannot write", path, error);
    if path.is_dir() {
        return Err(Error::new(ErrorKind::Io, "this is a directory; a file name is missing")
            .with_place(shown(path)));
    }
    let name = path.file_name().ok_or_else(|| {
        Error::new(ErrorKind::Io, "a file name is missing").with_place(shown(path))
    })?;
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
        let message = "this is a device, pipe or socket, which would be replaced by a file";
        return Err(Error::new(ErrorKind::Io, message)
            .with_place(shown(path))
            .with_help("name a file (Rust: Model::write_to writes to anything that is open)"));
    }
    model.check_complete()?;
    let directory = Directory::open(directory_of(path)).map_err(failed)?;
    let stays = model.data.directory() == Some(directory.path());
    let planned = layout::plan(&model.graph, &model.data, options, stays)?;
    let mut saving = Saving {
        options,
        path,
        directory,
        name,
        written: 0,
        total: planned.iter().map(|file| file.size).sum(),
        is_locked: false,
    };
    match saving.run(model, planned) {
        Ok(report) => Ok(report),
        Err(Failure::Io(error)) => Err(failed(error)),
        Err(Failure::Other(error)) => Err(error),
    }
}

enum Failure {
    Io(io::Error),
    Other(Error),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Io(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Other(error)
    }
}

type Done<T = ()> = Result<T, Failure>;

impl Saving<'_> {
    fn run(&mut self, model: &Model, planned: Vec<PlannedFile>) -> Done<SaveReport> {
        let form = match self.options.form {
            Some(form) => form,
            None => Form::of_path(self.path).unwrap_or_default(),
        };
        let mut changed = None;
        if self.options.weights == Weights::Inside {
            let mut copy = model.graph.clone();
            layout::embed(&mut copy, &model.data)?;
            changed = Some(copy);
        }
        let old = self.old_model();
        let mut files = self.write_data(model, &planned, &old)?;

        let mut report = SaveReport::default();
        let mut ready = None;
        // A model without data files of its own can be written before anybody has to wait.
        if planned.is_empty() {
            let graph = changed.as_ref().unwrap_or(&model.graph);
            ready = Some(self.write_model(graph, form, &mut report)?);
        }
        // From here to the end nobody else may give names to files of this directory. Systems
        // without such locks do without.
        let lock = File::open(self.directory.path()).ok();
        self.is_locked = lock.as_ref().is_some_and(|lock| lock.lock().is_ok());
        self.clean_up_after_crash(model);
        self.choose_names(&mut files, &planned, &old)?;
        let ready = match ready {
            Some(ready) => ready,
            None => {
                let mut copy = changed.unwrap_or_else(|| model.graph.clone());
                for (file, planned) in files.iter().zip(&planned) {
                    layout::point_into(
                        &mut copy,
                        planned,
                        &file.location,
                        file.checksum.as_deref(),
                    );
                }
                changed = Some(copy);
                let graph = changed.as_ref().unwrap_or(&model.graph);
                self.write_model(graph, form, &mut report)?
            }
        };
        let graph = changed.as_ref().unwrap_or(&model.graph);
        let kept = locations(graph);
        self.check_replaced(model, graph, form)?;
        let leaving: Vec<&String> = old.locations.difference(&kept).collect();
        let (leaving, shared) = if self.options.replace || self.is_where_it_was_read(model) {
            self.without_shared(leaving)
        } else {
            report.left = leaving.into_iter().cloned().collect();
            Default::default()
        };
        report.shared = shared;
        report.files = files
            .iter()
            .zip(&planned)
            .map(|(file, planned)| SavedFile {
                location: file.location.clone(),
                bytes: planned.size,
                tensors: planned.parts.len(),
                reused: file.pending.is_none(),
            })
            .collect();

        let note = self.leave_note(&files, &leaving)?;
        let placed = self.place(files, ready);
        if let Err(failure) = placed {
            // What is in the directory now is what a crash would have left.
            self.clean_up_after_crash(model);
            return Err(failure.into());
        }
        for location in leaving {
            if self.remove(&location).is_ok() {
                report.removed.push(location);
            }
        }
        if let Some(note) = note {
            self.step("remove the note")?;
            fs::remove_file(note)?;
        }
        if self.options.sync {
            self.sync_directory()?;
        }
        Ok(report)
    }

    /// Whether the model replaces the file that it was read from.
    fn is_where_it_was_read(&self, model: &Model) -> bool {
        let path = fs::canonicalize(self.path).ok();
        path.is_some() && path == model.path
    }

    /// Refuses to replace a file with values that the model, or the text that it was read from,
    /// needs from it.
    fn check_replaced(&self, model: &Model, successor: &graph::Model, form: Form) -> Done {
        let Some(replaced) = File::open(self.path).ok().and_then(|file| identity(&file).ok()?)
        else {
            return Ok(());
        };
        for location in locations(&model.graph) {
            let found = model.data.look(&location).ok();
            if found.is_some_and(|found| found.identity == Some(replaced)) {
                return Err(stored::still_needed_error(&location).into());
            }
        }
        let successor = (form == Form::Binary).then_some(successor);
        Ok(model.data.check_successor(replaced, successor)?)
    }

    fn step(&self, what: &str) -> io::Result<()> {
        match &self.options.before_step {
            Some(hook) => hook(what),
            None => Ok(()),
        }
    }

    /// What the model that is to be replaced refers to. A file that is no model refers to nothing.
    fn old_model(&self) -> Old {
        let locations = read_locations(self.path).unwrap_or_default();
        Old { locations }
    }

    /// Writes the data files, without names. A file of the old model with the same content is taken
    /// instead.
    fn write_data(
        &mut self,
        model: &Model,
        planned: &[PlannedFile],
        old: &Old,
    ) -> Done<Vec<NewFile>> {
        let mut files: Vec<NewFile> = Vec::new();
        for plan in planned {
            let several = planned.len() > 1;
            let same = old.locations.iter().find(|location| {
                let free = files.iter().all(|file| &file.location != *location);
                // A name that was asked for is what the file gets.
                let fits = self.options.name.as_ref().is_none_or(|base| {
                    let mut attempts = 1..MOST_ATTEMPTS;
                    attempts.any(|attempt| **location == named(base, &plan.label, several, attempt))
                });
                free && fits && self.is_the_same(model, plan, location).unwrap_or(false)
            });
            if let Some(location) = same {
                let checksum =
                    if self.options.checksum { Some(self.digest_of(location)?) } else { None };
                self.advance(plan.size);
                files.push(NewFile { location: location.clone(), pending: None, checksum });
                continue;
            }
            let mut pending = self.create()?;
            let checksum = self.write_parts(model, plan, pending.file());
            let checksum = self.or_discard(checksum, &mut pending)?;
            files.push(NewFile { location: String::new(), pending: Some(pending), checksum });
        }
        Ok(files)
    }

    /// Removes a temporary file if what should have filled it failed.
    fn or_discard<T>(&self, result: Done<T>, pending: &mut Unfinished) -> Done<T> {
        if result.is_err() && self.step("discard").is_ok() {
            pending.discard();
        }
        result
    }

    fn write_parts(
        &mut self,
        model: &Model,
        plan: &PlannedFile,
        mut file: &File,
    ) -> Done<Option<String>> {
        let mut hasher = self.options.checksum.then(Sha1::new);
        let mut end = 0;
        for part in &plan.parts {
            let bytes = layout::bytes_of(&model.graph, &model.data, *part)?;
            self.step("write")?;
            if part.offset > end {
                // A gap reads as zeros.
                file.seek(SeekFrom::Start(part.offset))?;
                if let Some(hasher) = &mut hasher {
                    let mut zeros = io::Read::take(io::repeat(0), part.offset - end);
                    io::copy(&mut zeros, &mut HashWriter(hasher))?;
                }
            }
            for chunk in bytes.as_slice().chunks(CHUNK_BYTES) {
                self.step("write")?;
                file.write_all(chunk)?;
                if let Some(hasher) = &mut hasher {
                    hasher.update(chunk);
                }
                self.advance(chunk.len() as u64);
            }
            end = part.offset + part.len;
        }
        if self.options.sync {
            self.step("sync")?;
            file.sync_all()?;
        }
        Ok(hasher.map(|hasher| hex(&hasher.finalize())))
    }

    fn advance(&mut self, bytes: u64) {
        self.written += bytes;
        if let Some(progress) = &self.options.progress {
            progress(self.written.min(self.total), self.total);
        }
    }

    /// Whether a file of the old model has just the content of a planned one.
    fn is_the_same(&self, model: &Model, plan: &PlannedFile, location: &str) -> io::Result<bool> {
        let Ok(()) = check_location(location) else {
            return Ok(false);
        };
        let Ok(file) = self.directory.open_file(Path::new(location)) else {
            return Ok(false);
        };
        if file.metadata()?.len() != plan.size {
            return Ok(false);
        }
        let there = mapping::map(&file)?;
        let mut end = 0;
        for part in &plan.parts {
            let Ok(bytes) = layout::bytes_of(&model.graph, &model.data, *part) else {
                return Ok(false);
            };
            let range = |from: u64, to: u64| there.as_slice().get(from as usize..to as usize);
            let gap = range(end, part.offset);
            end = part.offset + part.len;
            let same = gap.is_some_and(|gap| gap.iter().all(|byte| *byte == 0))
                && range(part.offset, end) == Some(bytes.as_slice());
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn digest_of(&self, location: &str) -> Done<String> {
        let file = self.directory.open_file(Path::new(location));
        let mut file = file.map_err(|refusal| match refusal {
            Refusal::Io(error) => error,
            _ => io::Error::other("a data file was replaced in the meantime"),
        })?;
        let mut hasher = Sha1::new();
        io::copy(&mut file, &mut HashWriter(&mut hasher))?;
        Ok(hex(&hasher.finalize()))
    }

    fn write_model(
        &mut self,
        graph: &graph::Model,
        form: Form,
        report: &mut SaveReport,
    ) -> Done<Unfinished> {
        let mut pending = self.create()?;
        let written = self.fill_model(graph, form, report, pending.file());
        self.or_discard(written, &mut pending)?;
        Ok(pending)
    }

    fn fill_model(
        &mut self,
        graph: &graph::Model,
        form: Form,
        report: &mut SaveReport,
        file: &File,
    ) -> Done {
        let encoded = graph.encoded();
        self.total += encoded.bytes();
        let mut sink = Sink { saving: self, file, bytes: 0 };
        report.left_out = form.write(graph, encoded, &mut sink)?;
        report.bytes = sink.bytes;
        if let Ok(old) = fs::metadata(self.path) {
            // Whoever could read the old file can read the new one.
            let _ = file.set_permissions(old.permissions());
        }
        if self.options.sync {
            self.step("sync")?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// A new file in the directory, without a name if possible.
    fn create(&self) -> Done<Unfinished> {
        self.step("create")?;
        Ok(Unfinished::create(self.directory.path())?)
    }

    /// Gives each new data file a name that no file of the directory and no tensor of the old model
    /// has.
    fn choose_names(&self, files: &mut [NewFile], planned: &[PlannedFile], old: &Old) -> Done {
        let base = match &self.options.name {
            Some(name) => {
                check_location(name).map_err(|why| {
                    Error::new(ErrorKind::Io, format!("invalid name of a data file: {why}"))
                })?;
                name.clone()
            }
            None => format!("{}.data", self.name.to_string_lossy()),
        };
        let several = planned.len() > 1;
        for attempt in 1.. {
            let names: Vec<String> =
                planned.iter().map(|plan| named(&base, &plan.label, several, attempt)).collect();
            let is_free = |name: &String| {
                // The model itself gets its name last.
                clean(name).as_os_str() != self.name
                    && !old.locations.contains(name)
                    && fs::symlink_metadata(self.directory.path().join(name)).is_err()
            };
            let wanted = files.iter().zip(&names);
            let mut wanted = wanted.filter(|(file, _)| file.pending.is_some());
            if wanted.all(|(_, name)| is_free(name)) {
                for (file, name) in files.iter_mut().zip(names) {
                    if file.pending.is_some() {
                        file.location = name;
                    }
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Parts data files that no other model of the directory uses from those that one does.
    fn without_shared(&self, leaving: Vec<&String>) -> (Vec<String>, Vec<String>) {
        if leaving.is_empty() {
            return Default::default();
        }
        let used = self.used_by_others();
        leaving.into_iter().cloned().partition(|location| {
            let path = clean(location);
            !used.iter().any(|other| *other == path)
        })
    }

    /// Data files of the other models in the directory.
    fn used_by_others(&self) -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(self.directory.path());
        let mut used = BTreeSet::new();
        for entry in entries.into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name() != self.name && Form::of_path(&path).is_some() {
                let locations = files_needed(&path).unwrap_or_default();
                used.extend(locations.iter().map(|location| clean(location)));
            }
        }
        used
    }

    /// Path of the note about a model of the directory.
    fn note_path(&self, model: &OsStr) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(model);
        name.push(NOTE_SUFFIX);
        self.directory.path().join(name)
    }

    /// Notes which files are in the directory for the time being. `None` if there are none.
    fn leave_note(&self, files: &[NewFile], leaving: &[String]) -> Done<Option<PathBuf>> {
        let mut lines = String::new();
        let mut line = |identity: Option<Identity>, location: &str| {
            if let Some((device, number)) = identity {
                lines += &format!("{device} {number} {location}\n");
            }
        };
        for file in files {
            if let Some(pending) = &file.pending {
                line(identity(pending.file())?, &file.location);
            }
        }
        for location in leaving {
            line(self.identity_of(location), location);
        }
        if files.iter().all(|file| file.pending.is_none()) && leaving.is_empty() {
            return Ok(None);
        }
        let path = self.note_path(self.name);
        self.step("write the note")?;
        let mut note = File::create(&path)?;
        note.write_all(lines.as_bytes())?;
        if self.options.sync {
            note.sync_all()?;
        }
        Ok(Some(path))
    }

    /// What tells a file of the directory from all others, links not followed.
    #[cfg(unix)]
    fn identity_of(&self, location: &str) -> Option<Identity> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::symlink_metadata(self.place_of(location)?).ok()?;
        let removable = metadata.is_file() || metadata.is_symlink();
        removable.then(|| (metadata.dev(), metadata.ino()))
    }

    #[cfg(not(unix))]
    fn identity_of(&self, _: &str) -> Option<Identity> {
        None
    }

    /// The path of a data file, unless a link would lead elsewhere.
    fn place_of(&self, location: &str) -> Option<PathBuf> {
        check_location(location).ok()?;
        let path = self.directory.path().join(clean(location));
        let real = fs::canonicalize(path.parent()?).ok()?;
        (Some(real.as_path()) == path.parent()).then_some(path)
    }

    /// Gives the new files their names, the model last.
    fn place(&self, files: Vec<NewFile>, mut model: Unfinished) -> io::Result<()> {
        for file in files {
            let Some(mut pending) = file.pending else {
                continue;
            };
            let path = self.directory.path().join(&file.location);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            self.step("name a data file")?;
            pending.take_name(&path)?;
        }
        if self.options.sync {
            self.sync_directory()?;
        }
        self.step("name the model")?;
        model.take_temporary_name(self.directory.path())?;
        let target = self.directory.path().join(self.name);
        let replaced = self.step("replace the model").and_then(|()| model.replace(&target));
        if replaced.is_err() && self.step("discard").is_ok() {
            model.discard();
        }
        replaced
    }

    fn remove(&self, location: &str) -> io::Result<()> {
        self.step("remove a data file")?;
        match self.place_of(location) {
            Some(path) => fs::remove_file(path),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Removes what earlier saves in the directory left behind when they were ended. `model` is the
    /// one that is saved.
    fn clean_up_after_crash(&self, model: &Model) {
        if self.step("clean up").is_err() {
            return;
        }
        remove_abandoned(self.directory.path());
        remove_of_earlier_releases(self.directory.path(), self.name);
        self.follow_note(self.name, model);
        if !self.is_locked {
            // Another process may be replacing another model.
            return;
        }
        for entry in fs::read_dir(self.directory.path()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_str();
            let of = name.and_then(|name| name.strip_prefix('.')?.strip_suffix(NOTE_SUFFIX));
            if let Some(of) = of {
                self.follow_note(OsStr::new(of), model);
            }
        }
    }

    /// Removes the files of the note about a model that belong to no model, and the note.
    fn follow_note(&self, about: &OsStr, model: &Model) {
        let path = self.note_path(about);
        let is_file = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
        let note = if is_file { fs::read_to_string(&path).ok() } else { None };
        let Some(note) = note else { return };
        let needed = [about, self.name].map(|name| files_needed(&self.directory.path().join(name)));
        let mut used = locations(&model.graph);
        used.extend(needed.into_iter().flatten().flatten());
        let used: BTreeSet<PathBuf> = used.iter().map(|location| clean(location)).collect();
        let mut others = None;
        let mut is_note = !note.is_empty();
        for line in note.lines() {
            let mut words = line.splitn(3, ' ');
            let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
            let identity = number().zip(number());
            let Some((identity, location)) = identity.zip(words.next()) else {
                is_note = false;
                continue;
            };
            let place = clean(location);
            let others = others.get_or_insert_with(|| self.used_by_others());
            let is_ours = self.identity_of(location) == Some(identity);
            if is_ours && !used.contains(&place) && !others.contains(&place) {
                let _ = self.remove(location);
            }
        }
        // A file of another program may have such a name.
        if is_note || about == self.name {
            let _ = fs::remove_file(path);
        }
    }

    #[cfg(unix)]
    fn sync_directory(&self) -> io::Result<()> {
        self.step("sync the directory")?;
        File::open(self.directory.path())?.sync_all()
    }

    #[cfg(not(unix))]
    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }
}

/// The model file while it is written: counts, reports, and takes big pieces as they are.
struct Sink<'s, 'a> {
    saving: &'s mut Saving<'a>,
    file: &'s File,
    bytes: u64,
}

impl Write for Sink<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.saving.step("write")?;
        // As much at a time as progress is told of.
        let mut room = CHUNK_BYTES;
        let fitting = slices.iter().take_while(|slice| {
            let fits = slice.len() <= room;
            room -= slice.len().min(room);
            fits
        });
        let written = match (fitting.count(), slices) {
            (0, [first, ..]) => (&mut &*self.file).write(&first[..CHUNK_BYTES])?,
            (count, _) => (&mut &*self.file).write_vectored(&slices[..count])?,
        };
        self.bytes += written as u64;
        self.saving.advance(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A location without `.` parts and doubled separators, to be compared.
fn clean(location: &str) -> PathBuf {
    let parts = Path::new(location).components();
    parts.filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

/// The name of a data file: `base`, a label if there are several, and a number from the second
/// attempt on.
fn named(base: &str, label: &str, several: bool, attempt: u32) -> String {
    match (several, label) {
        (true, label) if !label.is_empty() => number_name(&format!("{base}_{label}"), attempt),
        _ => number_name(base, attempt),
    }
}

/// A name with a number from the second attempt on.
pub(crate) fn number_name(base: &str, attempt: u32) -> String {
    let mut name = base.to_string();
    if attempt > 1 {
        // In front of the suffixes, by which people recognise and ignore such files.
        let file = name.rfind('/').map_or(0, |slash| slash + 1);
        let dot = name[file..].find('.').map_or(name.len(), |dot| file + dot);
        name.insert_str(dot, &format!("-{attempt}"));
    }
    name
}

/// The data files that a model refers to.
fn locations(graph: &graph::Model) -> BTreeSet<String> {
    let tensors = graph.tensors().into_iter().map(|id| graph.stored(id));
    tensors
        .filter(|tensor| tensor.is_external())
        .filter_map(|tensor| graph.external_reference(tensor).ok())
        .map(|reference| reference.location)
        .collect()
}

/// The data files that a model file refers to; `None` if it is none. What a text has in other files
/// is not its own.
fn read_locations(path: &Path) -> Option<BTreeSet<String>> {
    match referring(path)? {
        Referring::Model(graph) | Referring::Text(graph, _) => Some(locations(&graph)),
        Referring::BrokenText(_) => None,
    }
}

/// All files that a model file needs beside it: data files, and those in which a text has values.
fn files_needed(path: &Path) -> Option<BTreeSet<String>> {
    Some(match referring(path)? {
        Referring::Model(graph) => locations(&graph),
        Referring::Text(graph, mut needed) => {
            needed.extend(locations(&graph));
            needed
        }
        // A text that is being edited: whatever it says in quotes may be a file.
        Referring::BrokenText(text) => String::from_utf8_lossy(text.as_slice())
            .split('"')
            .skip(1)
            .step_by(2)
            .map(String::from)
            .collect(),
    })
}
