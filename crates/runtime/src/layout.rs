//! Layouts of values within the memory of others: views instead of copies.
//!
//! Transposing, slicing, splitting, repeating and reshaping need not move elements: they change the
//! order in which elements are read. A [`Layout`] holds that order: the offset of the first
//! element, and the stride along each axis. Layouts compose, so a chain of such operators is one
//! layout of its first input.

use sardonyx_kernels::pixels::pitch_of;
use sardonyx_tensor::{Dims, Strides, TensorError, TensorView, shape};

/// Offset and strides, in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) offset: usize,
    pub(crate) strides: Strides,
}

impl Layout {
    /// Returns the layout of a view in its data.
    pub(crate) fn from_view(view: &TensorView<'_>) -> Layout {
        Layout { offset: view.offset(), strides: view.strides() }
    }

    /// Makes a view of the data of another one, with these dimensions. It borrows the layout, so
    /// that it never allocates.
    pub(crate) fn to_view<'l, 'a: 'l>(
        &'l self,
        data: &TensorView<'a>,
        dims: &'l [usize],
    ) -> Result<TensorView<'l>, TensorError> {
        let (elem, strides) = (data.data_type(), &self.strides);
        TensorView::over_strides(elem, dims, strides, self.offset, data.data())
    }

    /// Makes the row-major layout without gaps.
    pub(crate) fn dense(dims: &[usize]) -> Layout {
        Layout { offset: 0, strides: shape::strides(dims) }
    }

    /// Makes the layout of an image with channels (axis 1) last, in memory of its own.
    pub(crate) fn channels_last(dims: &[usize]) -> Layout {
        let mut strides = Strides::from_elem(1, dims.len());
        let mut stride = pitch_of(dims[1]);
        for axis in (2..dims.len()).rev().chain([0]) {
            strides[axis] = stride as isize;
            stride = stride.saturating_mul(dims[axis]);
        }
        Layout { offset: 0, strides }
    }

    /// Returns the distance of pixels in elements, if channels (axis 1) are adjacent and all pixels
    /// of all images equally spaced.
    pub(crate) fn pitch(&self, dims: &[usize]) -> Option<usize> {
        pitch_of_strides(dims, &self.strides)
    }

    /// Returns the distance of rows along the last axis in elements, if the elements of each are
    /// adjacent and all rows equally spaced.
    pub(crate) fn row_pitch(&self, dims: &[usize]) -> Option<usize> {
        let last = dims.len().checked_sub(1)?;
        if dims[last] != 1 && self.strides[last] != 1 {
            return None;
        }
        let (mut pitch, mut expected) = (None, None);
        for (dim, stride) in dims.iter().zip(&self.strides).take(last).rev() {
            if *dim == 1 {
                continue;
            }
            if expected.is_some_and(|expected| expected != *stride) {
                return None;
            }
            pitch.get_or_insert(*stride);
            expected = Some(stride.checked_mul(isize::try_from(*dim).ok()?)?);
        }
        let pitch = pitch.map_or(Some(dims[last]), |pitch| usize::try_from(pitch).ok());
        pitch.filter(|pitch| *pitch >= dims[last])
    }

    /// Whether the elements are in row-major order without gaps, at any offset.
    pub(crate) fn is_dense(&self, dims: &[usize]) -> bool {
        let mut expected = 1;
        for (dim, stride) in dims.iter().zip(&self.strides).rev() {
            if *dim == 0 {
                return true;
            }
            if *dim != 1 && *stride != expected {
                return false;
            }
            expected *= *dim as isize;
        }
        true
    }

    /// Permutes the axes.
    pub(crate) fn transpose(&self, order: &[usize]) -> Layout {
        Layout {
            offset: self.offset,
            strides: order.iter().map(|axis| self.strides[*axis]).collect(),
        }
    }

    /// Selects every `step`-th element from `start` on along an axis. `None` if an address
    /// overflows.
    pub(crate) fn narrow(&self, axis: usize, start: usize, step: isize) -> Option<Layout> {
        let mut narrowed = self.clone();
        let by = isize::try_from(start).ok()?.checked_mul(self.strides[axis])?;
        narrowed.offset = self.offset.checked_add_signed(by)?;
        narrowed.strides[axis] = self.strides[axis].checked_mul(step)?;
        Some(narrowed)
    }

    /// Changes the dimensions, if strides can express it: axes may be split, and merged where the
    /// outer one steps over exactly the inner one.
    pub(crate) fn reshape(&self, from: &[usize], to: &[usize]) -> Option<Layout> {
        if from.contains(&0) || to.contains(&0) {
            return from
                .iter()
                .product::<usize>()
                .eq(&to.iter().product())
                .then(|| Layout::dense(to));
        }
        let mut strides = Strides::from_elem(0, to.len());
        // The stride of an axis of size 1 has no effect.
        let mut old = from
            .iter()
            .zip(&self.strides)
            .filter(|(dim, _)| **dim != 1)
            .map(|(dim, stride)| (*dim, *stride))
            .peekable();
        let mut next = 0;
        while next < to.len() {
            if to[next] == 1 {
                next += 1;
                continue;
            }
            // The fewest axes on both sides with equally many elements.
            let (mut have, mut last_stride) = old.next()?;
            let first = next;
            let mut want = to[next];
            next += 1;
            while have != want {
                if have < want {
                    let (dim, stride) = old.next()?;
                    // Axes merge if the outer one steps over exactly the inner one.
                    if last_stride != stride.checked_mul(dim as isize)? {
                        return None;
                    }
                    have = have.checked_mul(dim)?;
                    last_stride = stride;
                } else {
                    want = want.checked_mul(*to.get(next)?)?;
                    next += 1;
                }
            }
            let mut stride = last_stride;
            for axis in (first..next).rev() {
                strides[axis] = stride;
                stride = stride.checked_mul(to[axis] as isize)?;
            }
        }
        old.peek().is_none().then_some(Layout { offset: self.offset, strides })
    }

    /// Broadcasts to the dimensions `to`, aligned at the last axis.
    pub(crate) fn broadcast(&self, from: &[usize], to: &[usize]) -> Option<Layout> {
        let added = to.len().checked_sub(from.len())?;
        let mut strides = Strides::from_elem(0, to.len());
        for (axis, dim) in from.iter().enumerate() {
            match to[added + axis] {
                size if size == *dim => strides[added + axis] = self.strides[axis],
                _ if *dim == 1 => {}
                _ => return None,
            }
        }
        Some(Layout { offset: self.offset, strides })
    }
}

/// Returns the distance of pixels like [`Layout::pitch`], from strides.
pub(crate) fn pitch_of_strides(dims: &[usize], strides: &[isize]) -> Option<usize> {
    if dims.len() < 3 || (dims[1] != 1 && strides[1] != 1) {
        return None;
    }
    let (mut pitch, mut expected) = (None, None);
    for axis in (2..dims.len()).rev().chain([0]) {
        let (dim, stride) = (dims[axis], strides[axis]);
        if dim == 1 {
            continue;
        }
        if expected.is_some_and(|expected| expected != stride) {
            return None;
        }
        pitch.get_or_insert(stride);
        expected = Some(stride.checked_mul(isize::try_from(dim).ok()?)?);
    }
    let pitch = pitch.map_or(Some(dims[1]), |pitch| usize::try_from(pitch).ok());
    pitch.filter(|pitch| *pitch >= dims[1])
}

/// Arguments of a kernel's decision about the layout of its output.
pub(crate) struct ViewSite<'a> {
    /// Index of the output.
    pub(crate) output: usize,
    /// Dimensions and layout of the first input.
    pub(crate) from: &'a [usize],
    pub(crate) layout: &'a Layout,
    /// Dimensions of the output.
    pub(crate) to: &'a [usize],
    /// Function that returns the integers of another input, if they are known before the run.
    pub(crate) ints: &'a dyn Fn(usize) -> Option<Vec<i64>>,
    /// Function that tests whether another input is given.
    pub(crate) has_input: &'a dyn Fn(usize) -> bool,
}

/// Whether a layout is dense from offset 0, as for values that own their memory.
pub(crate) fn is_whole(dims: &Dims, layout: &Layout) -> bool {
    layout.offset == 0 && layout.is_dense(dims)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists the indices that a layout visits, in row-major order of `dims`.
    fn visit_order(dims: &[usize], layout: &Layout) -> Vec<isize> {
        let count: usize = dims.iter().product();
        (0..count)
            .map(|mut index| {
                let mut at = layout.offset as isize;
                for (dim, stride) in dims.iter().zip(&layout.strides).rev() {
                    at += (index % dim) as isize * stride;
                    index /= dim;
                }
                at
            })
            .collect()
    }

    #[test]
    fn reshaping_keeps_the_order_of_elements_or_refuses() {
        let cases: [(&[usize], &[usize], &[usize], bool); 9] = [
            // Heads split off and put in front, then a batch axis added and taken away.
            (&[6, 8], &[0, 1], &[6, 2, 4], true),
            (&[6, 8], &[1, 0], &[2, 4, 6], true),
            (&[6, 8], &[1, 0], &[48], false),
            (&[2, 3, 4], &[0, 1, 2], &[6, 4], true),
            (&[2, 3, 4], &[1, 0, 2], &[6, 4], false),
            (&[2, 3, 4], &[1, 0, 2], &[3, 1, 2, 2, 2], true),
            (&[1, 3, 1, 4], &[3, 0, 1, 2], &[4, 3], true),
            (&[1, 1], &[0, 1], &[], true),
            (&[0, 4], &[1, 0], &[2, 0], true),
        ];
        for (dims, order, to, possible) in cases {
            let transposed: Vec<usize> = order.iter().map(|axis| dims[*axis]).collect();
            let layout = Layout::dense(dims).transpose(order);
            let reshaped = layout.reshape(&transposed, to);
            assert_eq!(reshaped.is_some(), possible, "{dims:?} {order:?} as {to:?}");
            if let Some(reshaped) = reshaped {
                assert_eq!(
                    visit_order(&transposed, &layout),
                    visit_order(to, &reshaped),
                    "{dims:?} {order:?} as {to:?}"
                );
            }
        }
    }

    #[test]
    fn pixels_have_a_pitch() {
        let dims = [2, 40, 3, 5];
        let own = Layout::channels_last(&dims);
        assert_eq!(own.strides[..], [720, 1, 240, 48]);
        assert_eq!(own.pitch(&dims), Some(48));
        assert_eq!(Layout::channels_last(&[1, 256, 2, 2]).pitch(&[1, 256, 2, 2]), Some(272));
        // Some channels of all pixels.
        let part = own.narrow(1, 8, 1).unwrap();
        assert_eq!((part.offset, part.pitch(&[2, 16, 3, 5])), (8, Some(48)));
        // Reads an image with channels last as rows, and the inverse.
        let rows = Layout::dense(&[2, 3, 5, 40]).transpose(&[0, 3, 1, 2]);
        assert_eq!(rows.pitch(&dims), Some(40));
        assert_eq!(Layout::dense(&dims).pitch(&dims), None);
        // Some pixels, and every second channel.
        assert_eq!(own.narrow(3, 1, 1).unwrap().pitch(&[2, 40, 3, 4]), None);
        assert_eq!(own.narrow(1, 0, 2).unwrap().pitch(&[2, 20, 3, 5]), None);
        assert_eq!(Layout::dense(&[1, 7, 1, 1]).pitch(&[1, 7, 1, 1]), Some(7));
        assert_eq!(Layout::dense(&[3, 7, 1, 1]).pitch(&[3, 7, 1, 1]), Some(7));
    }

    #[test]
    fn repeating_and_narrowing_compose() {
        let layout = Layout::dense(&[4, 1, 3]);
        let last = layout.narrow(0, 3, -1).unwrap();
        assert_eq!(visit_order(&[2, 1, 3], &last), [9, 10, 11, 6, 7, 8]);
        let twice = last.broadcast(&[2, 1, 3], &[1, 2, 2, 3]).unwrap();
        assert_eq!(visit_order(&[1, 2, 2, 3], &twice), [9, 10, 11, 9, 10, 11, 6, 7, 8, 6, 7, 8]);
        assert_eq!(twice.reshape(&[1, 2, 2, 3], &[4, 3]), None);
        assert!(!twice.is_dense(&[1, 2, 2, 3]));
        assert!(layout.narrow(0, 2, 1).unwrap().is_dense(&[2, 1, 3]));
    }
}
