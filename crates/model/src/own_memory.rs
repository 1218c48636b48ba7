//! Copies parts of mapped files into memory that the model owns.
//!
//! Another program may change or truncate a file while it is mapped. A model that outlives its
//! reading, like that of a session, copies names, texts and small tensors, and drops large payloads
//! once they have been used.

use sardonyx_tensor::{Buffer, TensorError};

use crate::attribute::{Attribute, AttributeValue};
use crate::constant::{SparseTensorProto, TensorProto};
use crate::graph::{Function, Graph, Model};
use crate::ids::{Arena, AttributeId, GraphId, Id, SourceId};
use crate::source::Span;

/// Maximum size in bytes of payloads that share a buffer: most are a scale or a few sizes, for
/// which an allocation takes longer than the copy.
const POOLED: u64 = 256;

/// Size of the largest element, in bytes.
const ELEMENT: usize = 16;

impl Model {
    /// Copies names, texts, device configurations and tensors of up to `elements` elements out of
    /// mapped sources. Larger tensors stay there. `copy` copies one payload.
    ///
    /// Fields of newer format versions stay as well, as only writing the model reads them.
    ///
    /// # Errors
    ///
    /// An error of `copy`.
    pub fn copy_small(
        &mut self,
        elements: usize,
        copy: &mut dyn FnMut(&Buffer) -> Result<Buffer, TensorError>,
    ) -> Result<(), TensorError> {
        let mapped = self.mapped_sources();
        if !mapped.contains(&true) {
            return Ok(());
        }
        let is_mapped = |source: SourceId| mapped.get(source.index()).copied().unwrap_or(false);
        let pool = self.sources.push(Buffer::empty());
        let mut bytes = Vec::new();
        if self.names.lie_in(is_mapped) {
            self.names.copy_to(pool, &mut bytes, &self.sources);
        }
        let Model { header, sources, attributes, functions, graphs, extras, .. } = self;
        let mut keep = |span: &mut Span, align: usize, sources: &Arena<SourceId, Buffer>| {
            if is_mapped(span.source) {
                bytes.resize(bytes.len().next_multiple_of(align), 0);
                let offset = bytes.len() as u64;
                bytes.extend_from_slice(bytes_of(sources, *span));
                *span = Span { source: pool, offset, len: span.len };
            }
        };
        let of_nodes = extras.iter_mut().flat_map(|extras| &mut extras.device_configurations);
        for span in header.configuration.iter_mut().chain(of_nodes) {
            keep(span, 1, &*sources);
        }
        let defaults = functions.iter_mut().flat_map(|function| &mut function.attribute_protos);
        for attribute in attributes.iter_mut().chain(defaults) {
            for value in attribute.values.iter_mut() {
                match value {
                    AttributeValue::String(text) => keep(text, 1, &*sources),
                    AttributeValue::Strings(texts) => {
                        texts.iter_mut().for_each(|text| keep(text, 1, &*sources));
                    }
                    _ => {}
                }
            }
        }
        let mut failed = Ok(());
        for_each_tensor(graphs, attributes, functions, &mut |tensor| {
            if failed.is_err() || !has_at_most(tensor, elements) {
                return;
            }
            tensor.typed.iter_mut().for_each(|run| keep(&mut run.records, 1, &*sources));
            let Some(raw) = tensor.raw_data.as_mut().filter(|raw| is_mapped(raw.source)) else {
                return;
            };
            if raw.len <= POOLED {
                keep(raw, ELEMENT, &*sources);
                return;
            }
            let range = raw.offset as usize..(raw.offset + raw.len) as usize;
            match sources[raw.source].slice(range).and_then(|payload| copy(&payload)) {
                Ok(copied) => {
                    let source = sources.push(copied);
                    *raw = Span { source, offset: 0, len: raw.len };
                }
                Err(error) => failed = Err(error),
            }
        });
        failed?;
        self.sources[pool] = Buffer::from_vec(bytes);
        Ok(())
    }

    /// Drops mapped sources, after [`copy_small`](Model::copy_small): tensors whose values are
    /// still there are marked as skipped, as if the model had been read without them.
    pub fn drop_mapped(&mut self) {
        let mapped = self.mapped_sources();
        if !mapped.contains(&true) {
            return;
        }
        let is_mapped = |span: Span| mapped.get(span.source.index()).copied().unwrap_or(false);
        let Model { sources, attributes, functions, graphs, .. } = self;
        for_each_tensor(graphs, attributes, functions, &mut |tensor| {
            let typed = tensor.typed.iter().map(|run| run.records);
            let spans = tensor.raw_data.into_iter().chain(typed);
            if spans.clone().any(is_mapped) {
                tensor.skipped = Some(spans.map(|span| span.len).sum());
                tensor.raw_data = None;
                tensor.typed.clear();
            }
        });
        for (source, is_mapped) in sources.iter_mut().zip(mapped) {
            if is_mapped {
                *source = Buffer::empty();
            }
        }
    }

    /// Copies the mapped sources as a whole. `copy` copies one source.
    ///
    /// # Errors
    ///
    /// An error of `copy`.
    pub fn copy_sources(
        &mut self,
        copy: &mut dyn FnMut(&Buffer) -> Result<Buffer, TensorError>,
    ) -> Result<(), TensorError> {
        for source in self.sources.iter_mut().filter(|source| source.is_mapped()) {
            *source = copy(source)?;
        }
        Ok(())
    }

    /// Returns for each source whether it is a mapped file.
    fn mapped_sources(&self) -> Vec<bool> {
        self.sources.iter().map(|(_, source)| source.is_mapped()).collect()
    }
}

/// Returns the bytes of a span.
fn bytes_of(sources: &Arena<SourceId, Buffer>, span: Span) -> &[u8] {
    &sources[span.source].as_slice()[span.offset as usize..][..span.len as usize]
}

/// Whether the dimensions of a stored tensor give at most `most` elements.
fn has_at_most(tensor: &TensorProto, most: usize) -> bool {
    let mut dims = tensor.dims.iter().map(|dim| usize::try_from(*dim).unwrap_or(0));
    let elements = dims.try_fold(1usize, |count, dim| count.checked_mul(dim));
    elements.is_some_and(|elements| elements <= most)
}

/// Calls `change` for all stored tensors, including those that edits have removed.
fn for_each_tensor(
    graphs: &mut Arena<GraphId, Graph>,
    attributes: &mut Arena<AttributeId, Attribute>,
    functions: &mut [Function],
    change: &mut dyn FnMut(&mut TensorProto),
) {
    fn each_part(sparse: &mut SparseTensorProto, change: &mut dyn FnMut(&mut TensorProto)) {
        sparse.values.iter_mut().chain(&mut sparse.indices).for_each(change);
    }
    for graph in graphs.iter_mut() {
        for initializer in &mut graph.initializers {
            change(&mut initializer.tensor);
        }
        for initializer in &mut graph.sparse_initializers {
            each_part(&mut initializer.tensor, change);
        }
    }
    let defaults = functions.iter_mut().flat_map(|function| &mut function.attribute_protos);
    for attribute in attributes.iter_mut().chain(defaults) {
        for value in attribute.values.iter_mut() {
            match value {
                AttributeValue::Tensor(tensor) => change(tensor),
                AttributeValue::Tensors(tensors) => tensors.iter_mut().for_each(&mut *change),
                AttributeValue::SparseTensor(sparse) => each_part(sparse, change),
                AttributeValue::SparseTensors(list) => {
                    list.iter_mut().for_each(|sparse| each_part(sparse, change));
                }
                _ => {}
            }
        }
    }
}
