//! Replaces a model and its data files so that a crash at any moment leaves either the old or the
//! new files complete.
//!
//! New data files are written without a name where the system allows it (`O_TMPFILE`). Then they
//! are linked under names that the old model does not use, the new model is renamed over the old
//! one, and only then are the old data files removed. A note beside the model lists, with their
//! inodes, the files that a crash would leave behind. The next save in the directory reads the note
//! and removes each file that still has this inode and that no model uses.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sardonyx_model as graph;
use sha1::{Digest, Sha1};

use super::copy::FileCopier;
use super::layout::{self, PlannedFile};
use super::{SaveOptions, SaveReport, SavedFile, Weights, external_error};
use crate::beneath::{Directory, Identity, Refusal, read_identity};
use crate::error::{Error, ErrorKind};
use crate::external::{HashWriter, check_location, encode_hex, get_directory};
use crate::form::ModelFormat;
use crate::load::{ReferringFile, read_references};
use crate::mapping;
use crate::model::Model;
use crate::open::{display_path, io_error};
use crate::stored;
use crate::unfinished::{Unfinished, remove_abandoned, remove_earlier_release_files};

/// Callback that receives the name of each step before the step changes the disk. An error makes
/// the step fail.
pub(crate) type Hook = dyn Fn(&str) -> io::Result<()> + Send + Sync;

/// Number of bytes per write, and between two reports of progress. With 8 MiB, saving 1 GB was
/// slower than `cp`; with 1 MiB it is faster.
const CHUNK_BYTES: usize = 1 << 20;

/// File name suffix of a crash-recovery note, which lists the files that a crash would leave
/// behind: `.model.onnx.replacing` for the model file `model.onnx`.
const NOTE_SUFFIX: &str = ".replacing";

/// Exclusive upper bound of the number in the name of an old data file that may be reused.
const MOST_ATTEMPTS: u32 = 100;

/// State of a save in progress.
struct Saving<'a> {
    options: &'a SaveOptions,
    path: &'a Path,
    directory: Directory,
    /// Name of the model file without directory.
    name: &'a OsStr,
    /// Number of bytes written so far.
    written: u64,
    /// Number of bytes to write.
    total: u64,
    /// Whether this process holds the lock of the directory, without which no process links or
    /// renames files in it.
    is_locked: bool,
}

/// Data file of the new model: unfinished, or identical to an old data file and reused.
struct NewFile {
    /// Path relative to the directory of the model; empty until the name is chosen.
    location: String,
    /// Unfinished file; `None` if an identical data file exists and is reused.
    pending: Option<Unfinished>,
    /// SHA-1 in hexadecimal; `None` unless [`SaveOptions::checksum`] is set.
    checksum: Option<String>,
}

/// Data files of the model that will be replaced.
#[derive(Default)]
struct OldFiles {
    locations: BTreeSet<String>,
}

/// Saves `model` to `path`; see [`SaveOptions::save`].
pub(super) fn save(model: &Model, path: &Path, options: &SaveOptions) -> Result<SaveReport, Error> {
    if path.is_dir() {
        return Err(Error::new(
            ErrorKind::Io,
            "cannot save the model to a directory: the file name is missing",
        )
        .with_place(display_path(path)));
    }
    let name = path.file_name().ok_or_else(|| {
        Error::new(ErrorKind::Io, "cannot save the model: the path has no file name")
            .with_place(display_path(path))
    })?;
    if fs::symlink_metadata(path).is_ok_and(|found| !found.is_file() && !found.is_symlink()) {
        let message = "cannot save the model to a device, pipe or socket: a file would replace it";
        return Err(Error::new(ErrorKind::Io, message)
            .with_place(display_path(path))
            .with_help("save to a file name (Rust: Model::write_to writes to any open stream)"));
    }
    model.check_complete()?;
    let directory = Directory::open(get_directory(path));
    let directory = directory.map_err(|error| io_error("cannot write", path, error))?;
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
        Err(Failure::Io(error)) => Err(io_error("cannot write", path, error)),
        Err(Failure::Other(error)) => Err(error),
    }
}

/// Failure of a save: an error of the file system, or an error with a message of its own.
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

/// Result of a step of a save.
type Done<T = ()> = Result<T, Failure>;

impl Saving<'_> {
    /// Writes the data files and the model, and removes data files that the new model does not use.
    fn run(&mut self, model: &Model, planned: Vec<PlannedFile>) -> Done<SaveReport> {
        let form = match self.options.form {
            Some(form) => form,
            None => ModelFormat::from_path(self.path).unwrap_or_default(),
        };
        let mut changed = None;
        if self.options.weights == Weights::Inside {
            let mut copy = model.graph.clone();
            layout::embed(&mut copy, &model.data)?;
            changed = Some(copy);
        }
        let old = self.list_old_files();
        let mut files = self.write_data(model, &planned, &old)?;

        let mut report = SaveReport::default();
        let mut ready = None;
        // A model without new data files does not depend on their names, so it is written before
        // the lock is taken.
        if planned.is_empty() {
            let graph = changed.as_ref().unwrap_or(&model.graph);
            ready = Some(self.write_model(model, graph, form, &mut report)?);
        }
        // Under the lock, no other process links or renames files in this directory. On a system
        // without such locks, saving goes on without.
        let lock = File::open(self.directory.path()).ok();
        self.is_locked = lock.as_ref().is_some_and(|lock| lock.lock().is_ok());
        self.clean_up_after_crash(model);
        self.choose_names(&mut files, &planned, &old)?;
        let ready = match ready {
            Some(ready) => ready,
            None => {
                let mut copy = changed.unwrap_or_else(|| model.graph.clone());
                for (file, planned) in files.iter().zip(&planned) {
                    layout::refer_to_file(
                        &mut copy,
                        planned,
                        &file.location,
                        file.checksum.as_deref(),
                    );
                }
                changed = Some(copy);
                let graph = changed.as_ref().unwrap_or(&model.graph);
                self.write_model(model, graph, form, &mut report)?
            }
        };
        let graph = changed.as_ref().unwrap_or(&model.graph);
        let kept = list_data_locations(graph);
        self.check_replaced(model, graph, form)?;
        let leaving: Vec<&String> = old.locations.difference(&kept).collect();
        let (leaving, shared) = if self.options.replace || self.replaces_its_source(model) {
            self.split_shared(leaving)
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

        let note = self.write_note(&files, &leaving)?;
        let placed = self.publish_files(files, ready);
        if let Err(failure) = placed {
            // Until the note is removed, the directory is in a state that a crash may leave.
            self.clean_up_after_crash(model);
            return Err(failure.into());
        }
        for location in leaving {
            if self.remove_data_file(&location).is_ok() {
                report.removed.push(location);
            }
        }
        if let Some(note) = note {
            self.call_hook("remove the crash-recovery note")?;
            fs::remove_file(note)?;
        }
        if self.options.sync {
            self.sync_directory()?;
        }
        Ok(report)
    }

    /// Whether the model replaces the file that it was read from.
    fn replaces_its_source(&self, model: &Model) -> bool {
        let path = fs::canonicalize(self.path).ok();
        path.is_some() && path == model.path
    }

    /// Refuses to replace a file that holds values of the model or of the text that it was parsed
    /// from.
    fn check_replaced(&self, model: &Model, successor: &graph::Model, form: ModelFormat) -> Done {
        let Some(replaced) =
            File::open(self.path).ok().and_then(|file| read_identity(&file).ok()?)
        else {
            return Ok(());
        };
        for location in list_data_locations(&model.graph) {
            let found = model.data.open(&location).ok();
            if found.is_some_and(|found| found.identity == Some(replaced)) {
                return Err(stored::still_needed_error(&location).into());
            }
        }
        let successor = (form == ModelFormat::Binary).then_some(successor);
        Ok(model.data.check_successor(replaced, successor)?)
    }

    /// Calls the hook of the options with the name of the next step.
    fn call_hook(&self, what: &str) -> io::Result<()> {
        match &self.options.before_step {
            Some(hook) => hook(what),
            None => Ok(()),
        }
    }

    /// Lists the data files of the model that will be replaced; empty if the file at the path is
    /// not a model.
    fn list_old_files(&self) -> OldFiles {
        let locations = read_locations(self.path).unwrap_or_default();
        OldFiles { locations }
    }

    /// Writes the planned data files without linking them to names. Reuses identical data files of
    /// the old model.
    fn write_data(
        &mut self,
        model: &Model,
        planned: &[PlannedFile],
        old: &OldFiles,
    ) -> Done<Vec<NewFile>> {
        let mut files: Vec<NewFile> = Vec::new();
        for plan in planned {
            let several = planned.len() > 1;
            let same = old.locations.iter().find(|location| {
                let free = files.iter().all(|file| &file.location != *location);
                // A name that the caller chose is never replaced by that of an identical file.
                let fits = self.options.name.as_ref().is_none_or(|base| {
                    let mut attempts = 1..MOST_ATTEMPTS;
                    attempts.any(|attempt| {
                        **location == make_data_file_name(base, &plan.label, several, attempt)
                    })
                });
                free && fits && self.is_identical(model, plan, location).unwrap_or(false)
            });
            if let Some(location) = same {
                let checksum =
                    if self.options.checksum { Some(self.hash_data_file(location)?) } else { None };
                self.count_written_bytes(plan.size);
                files.push(NewFile { location: location.clone(), pending: None, checksum });
                continue;
            }
            let mut pending = self.create_unfinished()?;
            let checksum = self.write_parts(model, plan, pending.file());
            let checksum = self.discard_on_error(checksum, &mut pending)?;
            files.push(NewFile { location: String::new(), pending: Some(pending), checksum });
        }
        Ok(files)
    }

    /// Removes an unfinished file if writing it failed.
    fn discard_on_error<T>(&self, result: Done<T>, pending: &mut Unfinished) -> Done<T> {
        if result.is_err() && self.call_hook("discard an unfinished file").is_ok() {
            pending.discard();
        }
        result
    }

    /// Writes the tensors of a data file at their offsets. Returns the SHA-1 of the file in
    /// hexadecimal; `None` unless [`SaveOptions::checksum`] is set.
    fn write_parts(
        &mut self,
        model: &Model,
        plan: &PlannedFile,
        mut file: &File,
    ) -> Done<Option<String>> {
        let mut hasher = self.options.checksum.then(Sha1::new);
        let mut copier = FileCopier::new(model.list_mapped_files());
        let mut end = 0;
        for part in &plan.parts {
            let bytes = layout::read_tensor_bytes(&model.graph, &model.data, *part)?;
            self.call_hook("write a chunk of a file")?;
            if part.offset > end {
                // A skipped range reads as zeros.
                file.seek(SeekFrom::Start(part.offset))?;
                if let Some(hasher) = &mut hasher {
                    let mut zeros = io::Read::take(io::repeat(0), part.offset - end);
                    io::copy(&mut zeros, &mut HashWriter(hasher))?;
                }
            }
            for start in (0..bytes.len()).step_by(CHUNK_BYTES) {
                self.call_hook("write a chunk of a file")?;
                let end = bytes.len().min(start + CHUNK_BYTES);
                let chunk = bytes.slice(start..end).map_err(external_error)?;
                let mut left = chunk.as_slice();
                // A checksum has to read the bytes anyway.
                while hasher.is_none()
                    && let Some(copied) = copier.copy(left, file)
                {
                    left = &left[copied..];
                }
                if !left.is_empty() {
                    file.write_all(left)?;
                    if let Some(hasher) = &mut hasher {
                        hasher.update(left);
                    }
                    // Memory holds one chunk of a mapped file.
                    chunk.give_back_pages();
                }
                self.count_written_bytes(chunk.len() as u64);
            }
            end = part.offset + part.len;
        }
        if self.options.sync {
            self.call_hook("sync a file")?;
            file.sync_all()?;
        }
        Ok(hasher.map(|hasher| encode_hex(&hasher.finalize())))
    }

    /// Counts written bytes and reports the progress to the caller.
    fn count_written_bytes(&mut self, bytes: u64) {
        self.written += bytes;
        if let Some(progress) = &self.options.progress {
            progress(self.written.min(self.total), self.total);
        }
    }

    /// Whether the data file at `location` has exactly the bytes of a planned data file.
    fn is_identical(&self, model: &Model, plan: &PlannedFile, location: &str) -> io::Result<bool> {
        let Ok(()) = check_location(location) else {
            return Ok(false);
        };
        let Ok(file) = self.directory.open_file(Path::new(location)) else {
            return Ok(false);
        };
        if file.metadata()?.len() != plan.size {
            return Ok(false);
        }
        let there = mapping::map_file(&file)?;
        let mut end = 0;
        for part in &plan.parts {
            let Ok(bytes) = layout::read_tensor_bytes(&model.graph, &model.data, *part) else {
                return Ok(false);
            };
            let start = part.offset;
            let gap = there.as_slice().get(end as usize..start as usize);
            end = start + part.len;
            let same = gap.is_some_and(|gap| gap.iter().all(|byte| *byte == 0))
                && there.as_slice().get(start as usize..end as usize) == Some(bytes.as_slice());
            if !same {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the SHA-1 of a data file in hexadecimal.
    fn hash_data_file(&self, location: &str) -> Done<String> {
        let file = self.directory.open_file(Path::new(location));
        let mut file = file.map_err(|refusal| match refusal {
            Refusal::Io(error) => error,
            _ => io::Error::other("a data file was replaced while the model was saved"),
        })?;
        let mut hasher = Sha1::new();
        io::copy(&mut file, &mut HashWriter(&mut hasher))?;
        Ok(encode_hex(&hasher.finalize()))
    }

    /// Writes the model to an unfinished file, which is removed if writing fails.
    fn write_model(
        &mut self,
        model: &Model,
        graph: &graph::Model,
        form: ModelFormat,
        report: &mut SaveReport,
    ) -> Done<Unfinished> {
        let mut pending = self.create_unfinished()?;
        let copier = FileCopier::new(model.list_mapped_files());
        let target = Destination { file: pending.file(), copier };
        let written = self.fill_model(graph, form, report, target);
        self.discard_on_error(written, &mut pending)?;
        Ok(pending)
    }

    /// Encodes the model into the file of `target`; records its size and the omitted content in
    /// `report`.
    fn fill_model(
        &mut self,
        graph: &graph::Model,
        form: ModelFormat,
        report: &mut SaveReport,
        target: Destination<'_>,
    ) -> Done {
        let file = target.file;
        let encoded = graph.to_encoded();
        self.total += encoded.bytes();
        let mut sink = Sink { saving: self, target, bytes: 0 };
        report.left_out = form.write(graph, encoded, &mut sink)?;
        report.bytes = sink.bytes;
        if let Ok(old) = fs::metadata(self.path) {
            // A file that replaces another keeps its permissions.
            let _ = file.set_permissions(old.permissions());
        }
        if self.options.sync {
            self.call_hook("sync a file")?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// Creates an unfinished file in the directory of the model, without a name if the system
    /// allows it.
    fn create_unfinished(&self) -> Done<Unfinished> {
        self.call_hook("create an unfinished file")?;
        Ok(Unfinished::create(self.directory.path())?)
    }

    /// Chooses a name for each new data file that is free in the directory and that the old model
    /// does not refer to.
    fn choose_names(&self, files: &mut [NewFile], planned: &[PlannedFile], old: &OldFiles) -> Done {
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
            let names: Vec<String> = planned
                .iter()
                .map(|plan| make_data_file_name(&base, &plan.label, several, attempt))
                .collect();
            let wanted = files.iter().zip(&names);
            let mut wanted = wanted.filter(|(file, _)| file.pending.is_some());
            let are_free = wanted.all(|(_, name)| {
                // The model file is created last, so its name may look free.
                normalize(name).as_os_str() != self.name
                    && !old.locations.contains(name)
                    && fs::symlink_metadata(self.directory.path().join(name)).is_err()
            });
            if are_free {
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

    /// Splits data files into those that no other model in the directory uses and those that are
    /// shared.
    fn split_shared(&self, leaving: Vec<&String>) -> (Vec<String>, Vec<String>) {
        if leaving.is_empty() {
            return Default::default();
        }
        let used = self.list_used_by_others();
        leaving.into_iter().cloned().partition(|location| {
            let path = normalize(location);
            !used.iter().any(|other| *other == path)
        })
    }

    /// Lists the data files that other models in the directory use.
    fn list_used_by_others(&self) -> BTreeSet<PathBuf> {
        let entries = fs::read_dir(self.directory.path());
        let mut used = BTreeSet::new();
        for entry in entries.into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name() != self.name && ModelFormat::from_path(&path).is_some() {
                let locations = list_needed_files(&path).unwrap_or_default();
                used.extend(locations.iter().map(|location| normalize(location)));
            }
        }
        used
    }

    /// Returns the path of the crash-recovery note of a model file in the directory.
    fn make_note_path(&self, model: &OsStr) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(model);
        name.push(NOTE_SUFFIX);
        self.directory.path().join(name)
    }

    /// Writes the crash-recovery note, which lists the files that a crash would leave behind, and
    /// returns its path. `None` without such files.
    fn write_note(&self, files: &[NewFile], leaving: &[String]) -> Done<Option<PathBuf>> {
        let mut lines = String::new();
        for file in files {
            if let Some(pending) = &file.pending {
                lines += &format_note_line(read_identity(pending.file())?, &file.location);
            }
        }
        for location in leaving {
            lines += &format_note_line(self.read_identity(location), location);
        }
        if files.iter().all(|file| file.pending.is_none()) && leaving.is_empty() {
            return Ok(None);
        }
        let path = self.make_note_path(self.name);
        self.call_hook("write the crash-recovery note")?;
        let mut note = File::create(&path)?;
        note.write_all(lines.as_bytes())?;
        if self.options.sync {
            note.sync_all()?;
        }
        Ok(Some(path))
    }

    /// Returns device and inode of a file in the directory, without following a symlink; `None` if
    /// the location has no file.
    #[cfg(unix)]
    fn read_identity(&self, location: &str) -> Option<Identity> {
        use std::os::unix::fs::MetadataExt;
        let metadata = fs::symlink_metadata(self.resolve_data_path(location)?).ok()?;
        let removable = metadata.is_file() || metadata.is_symlink();
        removable.then(|| (metadata.dev(), metadata.ino()))
    }

    /// Returns `None`: files have no inode on this system.
    #[cfg(not(unix))]
    fn read_identity(&self, _: &str) -> Option<Identity> {
        None
    }

    /// Returns the path of a data file; `None` if the location is invalid or a symlink leads out of
    /// the directory.
    fn resolve_data_path(&self, location: &str) -> Option<PathBuf> {
        check_location(location).ok()?;
        let path = self.directory.path().join(normalize(location));
        let real = fs::canonicalize(path.parent()?).ok()?;
        (Some(real.as_path()) == path.parent()).then_some(path)
    }

    /// Gives the new data files their names, then renames the model over the old one.
    fn publish_files(&self, files: Vec<NewFile>, mut model: Unfinished) -> io::Result<()> {
        for file in files {
            let Some(mut pending) = file.pending else {
                continue;
            };
            let path = self.directory.path().join(&file.location);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            self.call_hook("rename a data file to its final name")?;
            pending.take_name(&path)?;
        }
        if self.options.sync {
            self.sync_directory()?;
        }
        self.call_hook("rename the model to its temporary name")?;
        model.take_temporary_name(self.directory.path())?;
        let target = self.directory.path().join(self.name);
        let replaced =
            self.call_hook("replace the old model file").and_then(|()| model.rename_to(&target));
        if replaced.is_err() && self.call_hook("discard an unfinished file").is_ok() {
            model.discard();
        }
        replaced
    }

    /// Removes a data file; fails if a symlink leads out of the directory.
    fn remove_data_file(&self, location: &str) -> io::Result<()> {
        self.call_hook("remove a data file")?;
        match self.resolve_data_path(location) {
            Some(path) => fs::remove_file(path),
            None => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Removes files that interrupted saves left in the directory, except the data files of
    /// `model`.
    fn clean_up_after_crash(&self, model: &Model) {
        if self.call_hook("clean up after a crash").is_err() {
            return;
        }
        remove_abandoned(self.directory.path());
        remove_earlier_release_files(self.directory.path(), self.name);
        self.apply_note(self.name, model);
        if !self.is_locked {
            // Without the lock, another process may be in the middle of replacing another model.
            return;
        }
        for entry in fs::read_dir(self.directory.path()).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_str();
            let of = name.and_then(|name| name.strip_prefix('.')?.strip_suffix(NOTE_SUFFIX));
            if let Some(of) = of {
                self.apply_note(OsStr::new(of), model);
            }
        }
    }

    /// Removes the files that the crash-recovery note of the model file `about` lists and no model
    /// uses, then the note.
    fn apply_note(&self, about: &OsStr, model: &Model) {
        let path = self.make_note_path(about);
        let is_file = fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
        let note = if is_file { fs::read_to_string(&path).ok() } else { None };
        let Some(note) = note else { return };
        let needed =
            [about, self.name].map(|name| list_needed_files(&self.directory.path().join(name)));
        let mut used = list_data_locations(&model.graph);
        used.extend(needed.into_iter().flatten().flatten());
        let used: BTreeSet<PathBuf> = used.iter().map(|location| normalize(location)).collect();
        let mut others = None;
        let mut is_note = !note.is_empty();
        for line in note.lines() {
            let mut words = line.splitn(3, ' ');
            let device = words.next().and_then(|word| word.parse::<u64>().ok());
            let number = words.next().and_then(|word| word.parse::<u64>().ok());
            let identity = device.zip(number);
            let Some((identity, location)) = identity.zip(words.next()) else {
                is_note = false;
                continue;
            };
            let place = normalize(location);
            let others = others.get_or_insert_with(|| self.list_used_by_others());
            let is_ours = self.read_identity(location) == Some(identity);
            if is_ours && !used.contains(&place) && !others.contains(&place) {
                let _ = self.remove_data_file(location);
            }
        }
        // A file whose lines have another format belongs to another program.
        if is_note || about == self.name {
            let _ = fs::remove_file(path);
        }
    }

    /// Flushes the directory to disk, so that new names survive a power failure.
    #[cfg(unix)]
    fn sync_directory(&self) -> io::Result<()> {
        self.call_hook("sync the directory")?;
        File::open(self.directory.path())?.sync_all()
    }

    /// Does nothing: this system cannot flush a directory.
    #[cfg(not(unix))]
    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }
}

/// File that is written, and the copier of what it takes from mapped files.
struct Destination<'f> {
    file: &'f File,
    copier: FileCopier,
}

/// Writer of the model file that counts bytes, reports progress, passes large slices through
/// without copying, and lets the system copy those that are mapped from files.
struct Sink<'s, 'a> {
    saving: &'s mut Saving<'a>,
    target: Destination<'s>,
    bytes: u64,
}

impl Sink<'_, '_> {
    /// Writes the first slices, or a part of the first one; at most one chunk, so that progress is
    /// reported often.
    fn write_some(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        let Destination { file, copier } = &mut self.target;
        let mut file = *file;
        let first = slices.first().map_or(&[][..], |slice| &slice[..slice.len().min(CHUNK_BYTES)]);
        if let Some(copied) = copier.copy(first, file) {
            return Ok(copied);
        }
        let mut room = CHUNK_BYTES;
        let fitting = slices.iter().enumerate().take_while(|(index, slice)| {
            let fits = slice.len() <= room && (*index == 0 || !copier.has(slice));
            room -= slice.len().min(room);
            fits
        });
        match fitting.count() {
            0 => file.write(first),
            count => file.write_vectored(&slices[..count]),
        }
    }
}

impl Write for Sink<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[io::IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
        self.saving.call_hook("write a chunk of a file")?;
        let written = self.write_some(slices)?;
        self.bytes += written as u64;
        self.saving.count_written_bytes(written as u64);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Normalizes the location of a data file for comparison: drops `.` components and doubled
/// separators.
fn normalize(location: &str) -> PathBuf {
    let parts = Path::new(location).components();
    parts.filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

/// Makes the name of a data file: `base`, `label` if there are several data files, and the number
/// `attempt` if it is at least 2.
fn make_data_file_name(base: &str, label: &str, several: bool, attempt: u32) -> String {
    match (several, label) {
        (true, label) if !label.is_empty() => number_name(&format!("{base}_{label}"), attempt),
        _ => number_name(base, attempt),
    }
}

/// Formats a line of a crash-recovery note: device, inode and location of a file. Empty for a file
/// without an inode.
fn format_note_line(identity: Option<Identity>, location: &str) -> String {
    match identity {
        Some((device, number)) => format!("{device} {number} {location}\n"),
        None => String::new(),
    }
}

/// Inserts the number `attempt` before the extensions of a file name; returns the name unchanged
/// for the first attempt.
pub(crate) fn number_name(base: &str, attempt: u32) -> String {
    let mut name = base.to_string();
    if attempt > 1 {
        // Before the extensions, so that tools still recognise the type of the file.
        let file = name.rfind('/').map_or(0, |slash| slash + 1);
        let dot = name[file..].find('.').map_or(name.len(), |dot| file + dot);
        name.insert_str(dot, &format!("-{attempt}"));
    }
    name
}

/// Lists the locations of the data files that a model refers to.
fn list_data_locations(graph: &graph::Model) -> BTreeSet<String> {
    let tensors = graph.tensors().into_iter().map(|id| graph.stored_tensor(id));
    tensors
        .filter(|tensor| tensor.is_external())
        .filter_map(|tensor| graph.external_reference(tensor).ok())
        .map(|reference| reference.location)
        .collect()
}

/// Lists the data files that a model file refers to; `None` if the file is not a model. Files from
/// which an ONNX text takes values are not included.
fn read_locations(path: &Path) -> Option<BTreeSet<String>> {
    match read_references(path)? {
        ReferringFile::Model(graph) | ReferringFile::Text(graph, _) => {
            Some(list_data_locations(&graph))
        }
        ReferringFile::BrokenText(_) => None,
    }
}

/// Lists all files that a model file needs: its data files, and files from which an ONNX text takes
/// values. `None` if the file is not a model.
fn list_needed_files(path: &Path) -> Option<BTreeSet<String>> {
    Some(match read_references(path)? {
        ReferringFile::Model(graph) => list_data_locations(&graph),
        ReferringFile::Text(graph, mut needed) => {
            needed.extend(list_data_locations(&graph));
            needed
        }
        // An unfinished text does not parse, so every quoted string in it counts as a location.
        ReferringFile::BrokenText(text) => String::from_utf8_lossy(text.as_slice())
            .split('"')
            .skip(1)
            .step_by(2)
            .map(String::from)
            .collect(),
    })
}
