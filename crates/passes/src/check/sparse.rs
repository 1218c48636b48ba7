//! Rules about stored sparse tensors. Indices are read piece by piece, whatever their number.

use sardonyx_model::{GraphId, SparseTensorProto, TensorProto};
use sardonyx_proto::{DataType, TensorField};

use super::Checker;
use crate::codes;
use crate::finding::Spot;
use crate::payload::for_each_chunk;

/// Check of indices as they are read. Keeps the first index that is wrong.
struct Walk<'a> {
    dims: &'a [i64],
    /// Whether an index is a single number, the position in the dense form.
    linear: bool,
    /// Number of elements of the dense form.
    elements: u64,
    row: Vec<i64>,
    before: Option<Vec<i64>>,
    /// Number of rows that have values; further ones are superfluous.
    rows: u64,
    /// Number of rows so far.
    count: u64,
    out_of_range: Option<(u64, i64)>,
    out_of_order: Option<u64>,
}

impl Walk<'_> {
    fn take(&mut self, index: i64) {
        let is_wrong = self.out_of_range.is_some() || self.out_of_order.is_some();
        if is_wrong || self.count == self.rows {
            return;
        }
        let limit = if self.linear {
            i64::try_from(self.elements).unwrap_or(i64::MAX)
        } else {
            self.dims[self.row.len()]
        };
        if !(0..limit).contains(&index) {
            self.out_of_range = Some((self.count, index));
            return;
        }
        self.row.push(index);
        if self.row.len() < if self.linear { 1 } else { self.dims.len() } {
            return;
        }
        match &mut self.before {
            Some(before) => {
                if *before >= self.row {
                    self.out_of_order = Some(self.count);
                }
                std::mem::swap(before, &mut self.row);
            }
            none => *none = Some(std::mem::take(&mut self.row)),
        }
        self.row.clear();
        self.count += 1;
    }
}

/// Returns the spot of one of the two tensors: `of_graph` is its name in a list of the graph,
/// `of_attribute` in the value of an attribute. For a list of sparse tensors, returns the spot of
/// the list.
fn part_of(spot: Spot, of_graph: &'static str, of_attribute: &'static str) -> Spot {
    match spot.inner.map_or("", |inner| inner.through) {
        "" => spot.through(of_graph),
        "sparse_tensor" => spot.through(of_attribute),
        _ => spot,
    }
}

impl Checker<'_> {
    /// Checks the sparse constants of a graph, each by itself.
    pub(super) fn sparse_initializers_alone(&mut self, graph: GraphId) {
        let list = &self.model.graph(graph).sparse_initializers;
        for (index, found) in list.iter().enumerate() {
            let spot = Spot::graph(graph).item("sparse_initializer", index);
            self.sparse_tensor(&found.tensor, spot);
        }
    }

    /// Checks a stored sparse tensor.
    pub(super) fn sparse_tensor(&mut self, sparse: &SparseTensorProto, spot: Spot) {
        let dense = match sparse.dims.iter().find(|dim| **dim <= 0) {
            _ if sparse.dims.is_empty() => {
                self.add(&codes::SPARSE_DIMS, spot, |_| {
                    "the sparse tensor has no dimensions".into()
                });
                None
            }
            Some(dim) => {
                self.add(&codes::SPARSE_DIMS, spot, |_| format!("invalid dimension {dim}"));
                None
            }
            None => self.dims(&sparse.dims, spot),
        };
        let Some(values) = &sparse.values else {
            self.add(&codes::SPARSE_WITHOUT_VALUES, spot, |_| {
                "the sparse tensor has no values".into()
            });
            return;
        };
        self.tensor(values, part_of(spot, "values", "sparse_tensor.values"));
        if values.dims.len() != 1 {
            self.add(&codes::SPARSE_VALUES_RANK, spot, |_| {
                format!("the values have {} dimensions, not 1", values.dims.len())
            });
            return;
        }
        let count = values.dims[0];
        let Some(indices) = &sparse.indices else {
            if count != 0 {
                self.add(&codes::SPARSE_WITHOUT_INDICES, spot, |_| {
                    format!("the sparse tensor has {count} values and no indices")
                });
            }
            return;
        };
        self.tensor(indices, part_of(spot, "indices", "sparse_tensor.indices"));
        if let Some(dense) = dense {
            self.indices(sparse, indices, count, dense, spot);
        }
    }

    fn indices(
        &mut self,
        sparse: &SparseTensorProto,
        indices: &TensorProto,
        count: i64,
        dense: u64,
        spot: Spot,
    ) {
        let rank = sparse.dims.len() as i64;
        let linear = match indices.dims[..] {
            [length] if length == count => true,
            [rows, columns] if rows == count && columns == rank => false,
            _ => {
                self.add(&codes::SPARSE_INDICES, spot, |_| {
                    format!(
                        "the indices have shape {:?}, not [{count}] or [{count}, {rank}]",
                        &indices.dims[..indices.dims.len().min(8)]
                    )
                });
                return;
            }
        };
        let ty = DataType(indices.data_type.unwrap_or(0));
        if ty != DataType::INT64 {
            self.add(&codes::SPARSE_INDICES, spot, |_| {
                format!(
                    "the indices have type {}, not INT64",
                    super::value_info::element_name(ty.0)
                )
            });
            return;
        }
        let mut walk = Walk {
            dims: &sparse.dims,
            linear,
            elements: dense,
            row: Vec::new(),
            before: None,
            rows: u64::try_from(count).unwrap_or(0),
            count: 0,
            out_of_range: None,
            out_of_order: None,
        };
        if let Some(raw) = indices.raw_data {
            let (whole, _) = self.model.bytes(raw).as_chunks();
            whole.iter().for_each(|bytes| walk.take(i64::from_le_bytes(*bytes)));
        }
        for_each_chunk(self.model, &indices.typed, |field| {
            if let TensorField::Int64Data(chunk) = field {
                // A broken packed list was found when the model was read.
                let _ = chunk.visit_words(|words| {
                    words.iter().for_each(|word| walk.take(*word as i64));
                });
            }
        });
        if let Some((row, index)) = walk.out_of_range {
            self.add(&codes::SPARSE_INDEX_RANGE, spot, |_| {
                format!("index {index} of value {row} is out of range")
            });
        }
        if let Some(row) = walk.out_of_order {
            self.add(&codes::SPARSE_INDEX_ORDER, spot, |_| {
                format!("the index of value {row} is not greater than the one before")
            });
        }
    }
}
