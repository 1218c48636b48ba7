//! TensorScatter: writes new entries of each sequence into a cache, along one axis.
//!
//! In memory of a state the cache is there already, and only new entries are written.

use std::ops::Range;

use sardonyx_kernels::Pool;
use sardonyx_tensor::{DataType, Dims, TensorView, shape::normalize_axis};

use super::concat::copy_into;
use super::scatter::{Sequences, write_packed};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Operand, Site, Target};
use crate::layout::Layout;
use crate::program::{MoveKind, Op, WriteRows};

/// Positions of the operands.
const CACHE: usize = 0;
const NEW: usize = 1;
const EXTENSION: usize = 3;

/// Lowers `TensorScatter`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let around = match site.string("mode").as_deref() {
        None | Some("linear") => false,
        Some("circular") => true,
        Some(other) => {
            return Err(BindError::Invalid(format!(
                "attribute 'mode' is '{other}', not linear or circular"
            )));
        }
    };
    let in_bytes = site.elem(CACHE)?.bits().is_some_and(|bits| bits % 8 == 0);
    let rows = WriteRows { axis: site.need_int("axis")?, around, in_bytes };
    Ok(Op::moves(MoveKind::WriteRows(rows), site))
}

impl Kernel for WriteRows {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if !self.in_bytes {
            return write_packed(call, self.axis, self.around);
        }
        let (cache, mut dims) = match call.operands.get(CACHE) {
            Some(Operand::There(dims)) => (None, Dims::clone(dims)),
            Some(Operand::InPlace) => match call.targets.first() {
                Some(Target::Planned { dims, .. }) => (None, Dims::clone(dims)),
                _ => fail!("an output in place has no memory"),
            },
            _ => {
                let cache = call.tensor(CACHE)?.clone();
                let dims = Dims::from(cache.dims());
                (Some(cache), dims)
            }
        };
        let axis = normalize_axis(self.axis, dims.len())?;
        let end = dims[axis];
        let extension = call.maybe_tensor(EXTENSION)?.cloned();
        if let Some(extension) = &extension {
            let count = extension.dims().get(axis).copied().unwrap_or(0);
            let mut expected = dims.clone();
            expected[axis] = count;
            if extension.dims() != &expected[..] {
                fail!(
                    "a cache of {dims:?} cannot be extended by {:?} along axis {axis}",
                    extension.dims()
                );
            }
            dims[axis] += count;
        }
        let sequences = Sequences::new(call, &dims, self.axis, self.around)?;
        let (new, pool) = (call.tensor(NEW)?.clone(), call.exec.pool);
        let data_type = new.data_type();
        let (dense, mut output);
        let (bytes, layout) = if call.has_layout(0) {
            call.output_with_layout(0, data_type, &dims)?
        } else {
            dense = Layout::dense(&dims);
            output = call.output(0, data_type, &dims)?;
            (output.bytes_mut(), &dense)
        };
        let mut output = Output { pool, data_type, bytes, layout, axis };
        if let Some(cache) = &cache {
            output.copy(cache, &Part::whole(cache, axis), 0)?;
        }
        if let Some(extension) = &extension {
            output.copy(extension, &Part::whole(extension, axis), end)?;
        }
        if new.is_empty() {
            return Ok(());
        }
        output.copy_new(&new, dims[axis], &sequences)
    }

    fn memory(&self) -> MemoryRules {
        if !self.in_bytes {
            return MemoryRules::default();
        }
        let strided = Inputs::from_positions(&[CACHE, NEW, EXTENSION]);
        MemoryRules { in_place: &[CACHE], strided, ..MemoryRules::default() }
    }

    fn describe(&self) -> String {
        "write rows".to_string()
    }
}

/// Part of the entries of some sequences.
struct Part {
    /// Sequences of the batch, axis 0.
    members: Range<usize>,
    /// Entries of each, along the axis of the cache.
    entries: Range<usize>,
}

impl Part {
    fn whole(view: &TensorView<'_>, axis: usize) -> Part {
        Part { members: 0..view.dims()[0], entries: 0..view.dims()[axis] }
    }
}

/// The updated cache.
struct Output<'a> {
    pool: &'a Pool,
    data_type: DataType,
    bytes: &'a mut [u8],
    layout: &'a Layout,
    axis: usize,
}

impl Output<'_> {
    /// Copies the new entries of all sequences into a cache of `size` entries.
    fn copy_new(
        &mut self,
        new: &TensorView<'_>,
        size: usize,
        sequences: &Sequences<'_>,
    ) -> Result<(), KernelError> {
        let (batch, count) = (new.dims()[0], sequences.count);
        let starts = sequences.starts.unwrap_or(&[0]);
        let is_shared = starts.iter().all(|start| *start == starts[0]);
        for (member, start) in starts.iter().enumerate() {
            // A remainder is below the size.
            let start = start.rem_euclid(size as i64) as usize;
            let members = if is_shared { 0..batch } else { member..member + 1 };
            let before_end = count.min(size - start);
            let part = Part { members, entries: 0..before_end };
            self.copy(new, &part, start)?;
            if before_end < count {
                self.copy(new, &Part { entries: before_end..count, ..part }, 0)?;
            }
            if is_shared {
                break;
            }
        }
        Ok(())
    }

    /// Copies a part of a tensor to the entries of its sequences from `position` on.
    fn copy(
        &mut self,
        from: &TensorView<'_>,
        part: &Part,
        position: usize,
    ) -> Result<(), KernelError> {
        let (mut dims, strides, axis) = (Dims::from(from.dims()), from.strides(), self.axis);
        (dims[0], dims[axis]) = (part.members.len(), part.entries.len());
        if dims.contains(&0) {
            return Ok(());
        }
        let start = [(0, part.members.start), (axis, part.entries.start)];
        let start = start.map(|(axis, index)| index as isize * strides[axis]);
        let offset = from.offset().saturating_add_signed(start[0] + start[1]);
        let view =
            TensorView::over_strides(from.data_type(), &dims, &strides, offset, from.data())?;
        let Layout { offset, strides } = self.layout;
        let to = offset
            + part.members.start * strides[0].unsigned_abs()
            + position * strides[axis].unsigned_abs();
        copy_into(self.pool, &view, self.data_type, self.bytes, to, self.layout)
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Int};
    use sardonyx_tensor::{DataType, StringArray, Tensor};

    use crate::ops::testing::{run, tensor};

    #[test]
    fn entries_replace_those_at_their_positions() {
        let mode = |word: &'static str| ("mode", AttrValue::from(word));
        let cache = tensor(&[2, 4, 2], &(0..16).collect::<Vec<i32>>());
        let update = tensor(&[2, 2, 2], &(20..28).collect::<Vec<i32>>());
        let rows: [(&str, Option<[i64; 2]>, [i32; 16]); 4] = [
            ("linear", None, [20, 21, 22, 23, 4, 5, 6, 7, 24, 25, 26, 27, 12, 13, 14, 15]),
            ("linear", Some([2, 1]), [0, 1, 2, 3, 20, 21, 22, 23, 8, 9, 24, 25, 26, 27, 14, 15]),
            (
                "circular",
                Some([3, 0]),
                [22, 23, 2, 3, 4, 5, 20, 21, 24, 25, 26, 27, 12, 13, 14, 15],
            ),
            (
                "circular",
                Some([-1, 8]),
                [22, 23, 2, 3, 4, 5, 20, 21, 24, 25, 26, 27, 12, 13, 14, 15],
            ),
        ];
        for (word, starts, expected) in rows {
            let starts = starts.map(|starts| tensor(&[2], &starts));
            let inputs = [Some(&cache), Some(&update), starts.as_ref()];
            let found = run("TensorScatter", &[mode(word)], &inputs, 1).unwrap();
            assert_eq!(found[0], tensor(&[2, 4, 2], &expected), "{word} {starts:?}");
        }
        let strings = |dims: &[usize], texts: &[&str]| {
            Tensor::from_strings(dims, texts.iter().collect::<StringArray>()).unwrap()
        };
        let (cache, start) = (strings(&[1, 3], &["a", "b", "c"]), tensor(&[1], &[1i64]));
        let update = strings(&[1, 1], &["x"]);
        let inputs = [Some(&cache), Some(&update), Some(&start)];
        let found = run("TensorScatter", &[("axis", Int(1))], &inputs, 1).unwrap();
        assert_eq!(found[0], strings(&[1, 3], &["a", "x", "c"]));
        let nibbles =
            |dims: &[usize], codes: &[u8]| Tensor::from_codes(DataType::Int4, dims, codes).unwrap();
        let (cache, update) = (nibbles(&[1, 3], &[1, 2, 3]), nibbles(&[1, 1], &[9]));
        let inputs = [Some(&cache), Some(&update), Some(&start)];
        let found = run("TensorScatter", &[("axis", Int(-1))], &inputs, 1).unwrap();
        assert_eq!(found[0], nibbles(&[1, 3], &[1, 9, 3]));
    }

    #[test]
    fn entries_that_do_not_fit() {
        let cache = tensor(&[2, 4, 2], &[0f32; 16]);
        let rows: [(i64, &[usize], &[i64], &str); 7] = [
            (1, &[2, 2, 2], &[0, 3], "write_indices is 3 for sequence 1: 2 entries exceed axis 1"),
            (1, &[2, 2, 2], &[-1, 0], "write_indices is -1 for sequence 0"),
            (1, &[2, 2, 2], &[i64::MAX, 0], "2 entries exceed axis 1 of size 4"),
            (1, &[2, 2, 2], &[0; 3], "write_indices has dimensions [3], but there are 2 sequences"),
            (1, &[2, 5, 2], &[0; 2], "the update has dimensions [2, 5, 2], which do not fit"),
            (1, &[2, 2], &[0; 2], "the update has dimensions [2, 2], which do not fit"),
            (0, &[2, 4, 2], &[0; 2], "axis 0 is the batch axis and is not allowed"),
        ];
        for (axis, dims, starts, refusal) in rows {
            let update = tensor(dims, &vec![0f32; dims.iter().product()]);
            let starts = tensor(&[starts.len()], starts);
            let inputs = [Some(&cache), Some(&update), Some(&starts)];
            let found = run("TensorScatter", &[("axis", Int(axis))], &inputs, 1).unwrap_err();
            assert!(found.contains(refusal), "{found}");
        }
        let inputs = [Some(&cache), Some(&cache), None];
        let found = run("TensorScatter", &[("mode", AttrValue::from("ring"))], &inputs, 1);
        assert_eq!(found.unwrap_err(), "attribute 'mode' is 'ring', not linear or circular");
    }
}
