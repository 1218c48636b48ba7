//! The content hash: one number for what a model says, wherever its weights are stored.

use std::collections::HashMap;
use std::io;

use sardonyx_model::{self as graph, TensorId};
use sardonyx_ops::Registry;
use sardonyx_passes::without_devices;
use sardonyx_tensor::Buffer;
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};
use crate::external::{HashWriter, hex};
use crate::model::Model;
use crate::save::embed;

/// The first bytes that go into the digest. A change of what is hashed gets a new number.
const HEADING: &[u8] = b"sardonyx content hash 1\n";

impl Model {
    /// SHA-256, hexadecimal, of the model in its binary form with the values of all tensors but
    /// strings in `raw_data`. Equal for models that differ only in whether values lie in typed
    /// lists, in `raw_data` or in data files; everything else counts, documentation and unknown
    /// fields included.
    ///
    /// ```
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let model = sardonyx::Model::open(path)?;
    /// assert_eq!(model.content_hash()?.len(), 64);
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ExternalData`] if a data file cannot be read, [`ErrorKind::Invalid`] for a
    /// model that was opened without its payloads.
    pub fn content_hash(&self) -> Result<String, Error> {
        self.check_complete()?;
        let tensors = self.graph.tensors();
        let is_plain = |id: &TensorId| {
            let stored = self.graph.stored(*id);
            let is_raw = stored.typed.is_empty() || stored.raw_data.is_some();
            is_raw && stored.external_data.is_empty() && stored.data_location.is_none()
        };
        // A model whose values all lie in `raw_data` is hashed as it is: copying one of many nodes
        // takes as long as writing it.
        if tensors.iter().all(is_plain) {
            return digest_of(&self.graph);
        }
        let mut graph = self.graph.clone();
        embed(&mut graph, &self.data)?;
        for id in tensors {
            let stored = graph.stored(id);
            let is_plain = stored.typed.is_empty() || stored.raw_data.is_some();
            // What contradicts itself is hashed as it is.
            let value = if is_plain { None } else { graph.tensor(stored, &*self.data).ok() };
            if let Some(bytes) = value.and_then(|value| value.buffer().cloned()) {
                let span = graph.add_bytes(bytes);
                let stored = graph.stored_mut(id);
                stored.typed.clear();
                stored.raw_data = Some(span);
            }
            let stored = graph.stored_mut(id);
            stored.external_data.clear();
            stored.data_location = None;
        }
        digest_of(&graph)
    }

    /// Like [`Model::content_hash`], but equal for models that differ only in how they are divided
    /// over devices: configurations, annotations of nodes, and what [`Model::shard`] changes for
    /// them.
    pub(crate) fn hash_without_devices(&self) -> Result<String, Error> {
        let mut graph = without_devices(&self.graph, &Registry::with_microsoft());
        // Filled in where a model that is changed names none.
        graph.header.producer_name = None;
        graph.header.producer_version = None;
        self.with_graph(graph).content_hash()
    }

    /// As [`Model::content_hash`], but of tensors of more than [`SAMPLED`] bytes only some pages
    /// count: enough to tell models apart, in a time that does not grow with their weights.
    pub(crate) fn sampled_hash(&self) -> Result<String, Error> {
        self.check_complete()?;
        let mut graph = self.graph.clone();
        for id in self.graph.tensors() {
            let value = self.graph.tensor(self.graph.stored(id), &*self.data);
            // What contradicts itself is hashed as it is.
            let Some(bytes) = value.ok().and_then(|value| value.buffer().cloned()) else {
                continue;
            };
            let span = graph.add_bytes(sampled(bytes));
            let stored = graph.stored_mut(id);
            stored.typed.clear();
            stored.raw_data = Some(span);
            stored.external_data.clear();
            stored.data_location = None;
        }
        digest_of(&graph)
    }
}

/// Up to so many bytes of a tensor, all count for [`Model::sampled_hash`].
const SAMPLED: usize = 1 << 16;
const PAGE: usize = 1 << 12;

/// Pages of large values, from the first to the last one.
fn sampled(bytes: Buffer) -> Buffer {
    if bytes.len() <= SAMPLED {
        return bytes;
    }
    let step = (bytes.len() - PAGE) / (SAMPLED / PAGE - 1);
    let pages = (0..SAMPLED / PAGE).map(|page| &bytes.as_slice()[page * step..][..PAGE]);
    Buffer::from_vec(pages.collect::<Vec<_>>().concat())
}

/// Pages of files are given back as soon as they are hashed: who trains a model hashes it to save
/// the state, and the values in the file are not the current ones then.
fn digest_of(graph: &graph::Model) -> Result<String, Error> {
    let mut hasher = Sha256::new();
    hasher.update(HEADING);
    let raw = graph.tensors().into_iter().filter_map(|id| graph.stored(id).raw_data);
    let values = raw.map(|span| graph.buffer(span)).filter(|value| value.len() > SAMPLED);
    let values = values.map(|value| (value.as_slice().as_ptr().addr(), value)).collect();
    graph
        .write_to(&mut OnceRead { hasher: HashWriter(&mut hasher), values })
        .map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
    Ok(hex(&hasher.finalize()))
}

/// A writer that gives pages of values back after it has read them.
struct OnceRead<W> {
    hasher: W,
    /// By where they begin. Each is written at once.
    values: HashMap<usize, Buffer>,
}

impl<W: io::Write> io::Write for OnceRead<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.hasher.write(bytes)?;
        if let Some(value) = self.values.remove(&bytes.as_ptr().addr()) {
            value.give_back_pages();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.hasher.flush()
    }
}
