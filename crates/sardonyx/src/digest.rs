//! Content hashes of models, which do not depend on where weights are stored.

use std::collections::HashMap;
use std::io;

use sardonyx_model::{self as graph, TensorProto};
use sardonyx_ops::Registry;
use sardonyx_passes::without_devices;
use sardonyx_tensor::Buffer;
use sha2::{Digest, Sha256};

use crate::error::{Error, ErrorKind};
use crate::external::{HashWriter, encode_hex};
use crate::model::Model;
use crate::save::embed;

/// First bytes of the hashed data, with a version number: a change of the hashed data must raise
/// the number.
const HEADING: &[u8] = b"sardonyx content hash 1\n";

impl Model {
    /// Computes a SHA-256 digest of the model, as hexadecimal digits. The digest is equal for
    /// models that differ only in the storage of tensors: in typed fields such as `float_data`, in
    /// `raw_data` or in external data files. All other fields are hashed, documentation and unknown
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
        // Copying a model of many nodes takes as long as writing it, so a model that has all values
        // in `raw_data` already is hashed without a copy.
        if tensors.iter().all(|id| has_raw_data_only(self.graph.stored_tensor(*id))) {
            return hash_graph(&self.graph);
        }
        let mut graph = self.graph.clone();
        embed(&mut graph, &self.data)?;
        for id in tensors {
            let stored = graph.stored_tensor(id);
            let is_inside = stored.typed.is_empty() || stored.raw_data.is_some();
            // An invalid tensor is hashed in the form that it has.
            let value = if is_inside { None } else { graph.tensor(stored, &*self.data).ok() };
            if let Some(bytes) = value.and_then(|value| value.buffer().cloned()) {
                let span = graph.add_bytes(bytes);
                let stored = graph.stored_tensor_mut(id);
                stored.typed.clear();
                stored.raw_data = Some(span);
            }
            let stored = graph.stored_tensor_mut(id);
            stored.external_data.clear();
            stored.data_location = None;
        }
        hash_graph(&graph)
    }

    /// Computes a [`Model::content_hash`] that ignores sharding: it is equal for models that differ
    /// only in device configurations, sharding annotations of nodes, and the changes that
    /// [`Model::shard`] makes for them.
    pub(crate) fn hash_without_devices(&self) -> Result<String, Error> {
        let mut graph = without_devices(&self.graph, &Registry::with_microsoft());
        // `Model::shard` fills in a producer if there is none.
        graph.header.producer_name = None;
        graph.header.producer_version = None;
        self.with_graph(graph).content_hash()
    }

    /// Computes a digest like [`Model::content_hash`], but hashes only some pages of each tensor of
    /// more than [`SAMPLED`] bytes: enough to distinguish models, in a time that does not grow with
    /// the size of the weights.
    #[cfg(feature = "device")]
    pub(crate) fn hash_sampled_pages(&self) -> Result<String, Error> {
        self.check_complete()?;
        let mut graph = self.graph.clone();
        for id in self.graph.tensors() {
            let value = self.graph.tensor(self.graph.stored_tensor(id), &*self.data);
            // An invalid tensor is hashed in the form that it has.
            let Some(bytes) = value.ok().and_then(|value| value.buffer().cloned()) else {
                continue;
            };
            let span = graph.add_bytes(sample_pages(bytes));
            let stored = graph.stored_tensor_mut(id);
            stored.typed.clear();
            stored.raw_data = Some(span);
            stored.external_data.clear();
            stored.data_location = None;
        }
        hash_graph(&graph)
    }
}

/// Number of bytes above which a tensor is large: [`Model::content_hash`] gives back its mapped
/// pages, and sampling hashes only some of them.
const SAMPLED: usize = 1 << 16;
/// Size in bytes of a page that [`sample_pages`] copies.
#[cfg(feature = "device")]
const PAGE: usize = 1 << 12;

/// Copies [`SAMPLED`] bytes of a larger tensor: evenly spaced pages from its beginning to its end.
/// Releases its mapped pages then: with a page, the system maps those around it, 64 KiB in all on
/// Linux, which made 175 MB of a model of 436 MB resident. Smaller tensors are returned in full.
#[cfg(feature = "device")]
fn sample_pages(bytes: Buffer) -> Buffer {
    if bytes.len() <= SAMPLED {
        return bytes;
    }
    let step = (bytes.len() - PAGE) / (SAMPLED / PAGE - 1);
    let pages = (0..SAMPLED / PAGE).map(|page| &bytes.as_slice()[page * step..][..PAGE]);
    let sampled = pages.collect::<Vec<_>>().concat();
    bytes.give_back_pages();
    Buffer::from_vec(sampled)
}

/// Whether a tensor has its elements in `raw_data` or has none, and no fields that refer to
/// external data.
fn has_raw_data_only(stored: &TensorProto) -> bool {
    let is_inside = stored.typed.is_empty() || stored.raw_data.is_some();
    is_inside && stored.external_data.is_empty() && stored.data_location.is_none()
}

/// Computes the SHA-256 of a model as binary protobuf, in hexadecimal. Mapped pages are released
/// once they are hashed: a trainer hashes its model to save the state, and does not need the
/// initial weights in memory then.
fn hash_graph(graph: &graph::Model) -> Result<String, Error> {
    let mut hasher = Sha256::new();
    hasher.update(HEADING);
    let raw = graph.tensors().into_iter().filter_map(|id| graph.stored_tensor(id).raw_data);
    let values = raw.map(|span| graph.buffer(span)).filter(|value| value.len() > SAMPLED);
    let values = values.map(|value| (value.as_slice().as_ptr().addr(), value)).collect();
    graph
        .write_to(&mut OnceRead { hasher: HashWriter(&mut hasher), values })
        .map_err(|error| Error::new(ErrorKind::Io, error.to_string()))?;
    Ok(encode_hex(&hasher.finalize()))
}

/// Writer that hashes bytes and releases the mapped pages of large tensors after hashing them.
struct OnceRead<W> {
    hasher: W,
    /// Large tensors by the address of their bytes. Each tensor is written in one call.
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
