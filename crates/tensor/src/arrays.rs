//! Exchange with the crate `ndarray`: arrays become tensors and views, and back, by taking over or
//! borrowing their elements wherever the layout allows.

use ndarray::{ArrayView, ArrayViewD, ArrayViewMut, ArrayViewMutD, CowArray};
use ndarray::{Dimension, IxDyn, ShapeBuilder};

use crate::buffer::{AlignedBytes, Buffer};
use crate::element::Element;
use crate::error::{TensorError, err};
use crate::tensor::{Tensor, storage_bytes};
use crate::view::{TensorView, TensorViewMut, ViewData};

impl Tensor {
    /// Makes a tensor from an array or from a view of one. An owned array in row-major order is
    /// taken over without a copy; others are copied.
    ///
    /// ```
    /// use ndarray::array;
    /// use sardonyx_tensor::Tensor;
    ///
    /// let tensor = Tensor::from_array(array![[1.0f32, 2.0], [3.0, 4.0]])?;
    /// assert_eq!(tensor.dims(), &[2, 2]);
    /// let columns = array![[1i64, 2], [3, 4]];
    /// let transposed = Tensor::from_array(columns.t())?;
    /// assert_eq!(transposed.as_slice::<i64>()?, [1, 3, 2, 4]);
    /// # Ok::<(), sardonyx_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// Memory for a copy cannot be allocated.
    pub fn from_array<'a, T: Element, D: Dimension>(
        array: impl Into<CowArray<'a, T, D>>,
    ) -> Result<Tensor, TensorError> {
        let array = array.into();
        let dims = array.shape().to_vec();
        if array.is_view() || !array.is_standard_layout() {
            return copy_elements(&array.view());
        }
        let bytes = storage_bytes(T::DATA_TYPE, array.len())?;
        let (elements, first) = array.into_owned().into_raw_vec_and_offset();
        // An array without elements has no first one.
        let start = first.unwrap_or(0) * size_of::<T>();
        let buffer = Buffer::from_elements(elements).slice(start..start + bytes)?;
        Tensor::from_buffer(T::DATA_TYPE, dims, buffer)
    }

    /// Borrows the elements as an array of dynamic rank.
    ///
    /// ```
    /// use ndarray::array;
    /// use sardonyx_tensor::Tensor;
    ///
    /// let tensor = Tensor::from_vec([2, 2], vec![1.0f32, 2.0, 3.0, 4.0])?;
    /// assert_eq!(tensor.as_array::<f32>()?.sum(), 10.0);
    /// let matrix = tensor.as_array::<f32>()?.into_dimensionality::<ndarray::Ix2>().unwrap();
    /// assert_eq!(matrix.dot(&array![1.0, 1.0]), array![3.0, 7.0]);
    /// # Ok::<(), sardonyx_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// The element type is not that of `T`, or the bytes are not aligned for `T`.
    pub fn as_array<T: Element>(&self) -> Result<ArrayViewD<'_, T>, TensorError> {
        self.view().as_array()
    }

    /// Borrows the elements as an array for writing. Copies them first if other tensors share them
    /// or if they are not aligned.
    ///
    /// # Errors
    /// The element type is not that of `T`, or memory for a copy cannot be allocated.
    pub fn as_array_mut<T: Element>(&mut self) -> Result<ArrayViewMutD<'_, T>, TensorError> {
        let dims = IxDyn(self.dims());
        match ArrayViewMut::from_shape(dims, self.as_mut_slice()?) {
            Ok(array) => Ok(array),
            Err(e) => err!(Shape, "{e}"),
        }
    }
}

impl<'a> TensorView<'a> {
    /// Borrows the elements of an array, in any order of axes and in either direction.
    ///
    /// ```
    /// use ndarray::array;
    /// use sardonyx_tensor::TensorView;
    ///
    /// let array = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    /// let view = TensorView::from_array(array.t())?;
    /// assert_eq!((view.dims(), &view.strides()[..]), (&[3, 2][..], &[1, 3][..]));
    /// # Ok::<(), sardonyx_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// The elements have gaps between them, as in some columns of a matrix: elements in the gaps
    /// may be borrowed for writing. [`Tensor::from_array`] copies such a view.
    pub fn from_array<T: Element, D: Dimension>(
        array: ArrayView<'a, T, D>,
    ) -> Result<TensorView<'a>, TensorError> {
        if let Some(elements) = array.to_slice() {
            return TensorView::from_slice(array.shape(), elements);
        }
        let Some(elements) = array.to_slice_memory_order() else {
            return err!(
                Unsupported,
                "a view of an array with gaps between its elements cannot be borrowed; \
                 Tensor::from_array copies it"
            );
        };
        // The elements begin at the lowest address. Axes with a negative stride begin at their end.
        let from_end = array.shape().iter().zip(array.strides());
        let from_end = from_end.filter(|(_, stride)| **stride < 0);
        let offset = from_end.map(|(dim, stride)| dim.saturating_sub(1) * stride.unsigned_abs());
        TensorView::with_strides(
            T::DATA_TYPE,
            array.shape(),
            array.strides(),
            offset.sum(),
            ViewData::Bytes(bytemuck::cast_slice(elements)),
        )
    }

    /// Borrows the elements as an array of dynamic rank with the view's strides.
    ///
    /// # Errors
    /// The element type is not that of `T`, or the bytes are not aligned for `T`.
    pub fn as_array<T: Element>(&self) -> Result<ArrayViewD<'a, T>, TensorError> {
        let dims = IxDyn(self.dims());
        let array = if self.is_contiguous() {
            ArrayView::from_shape(dims, self.as_slice()?)
        } else {
            let (elements, strides) = (self.data_slice()?, self.strides());
            // `ndarray` expects the lowest address, and derives the first element from the strides.
            let from_end = self.dims().iter().zip(&strides).filter(|(_, stride)| **stride < 0);
            let from_end: usize =
                from_end.map(|(dim, stride)| (dim - 1) * stride.unsigned_abs()).sum();
            let strides: Vec<usize> = strides.iter().map(|stride| *stride as usize).collect();
            let elements = &elements[self.offset() - from_end..];
            ArrayView::from_shape(dims.strides(IxDyn(&strides)), elements)
        };
        match array {
            Ok(array) => Ok(array),
            Err(e) => err!(Shape, "{e}"),
        }
    }
}

impl<'a> TensorViewMut<'a> {
    /// Borrows the elements of an array for writing.
    ///
    /// # Errors
    /// The array is not in row-major order.
    pub fn from_array<T: Element, D: Dimension>(
        array: ArrayViewMut<'a, T, D>,
    ) -> Result<TensorViewMut<'a>, TensorError> {
        let dims = array.shape().to_vec();
        match array.into_slice() {
            Some(elements) => TensorViewMut::from_slice(dims, elements),
            None => err!(
                Unsupported,
                "outputs are written in row-major order, and the elements of the array lie in another one"
            ),
        }
    }
}

/// Copies the elements, row by row, into aligned memory.
fn copy_elements<T: Element, D: Dimension>(
    array: &ArrayView<'_, T, D>,
) -> Result<Tensor, TensorError> {
    let bytes = storage_bytes(T::DATA_TYPE, array.len())?;
    let mut copy = AlignedBytes::zeroed(bytes)?;
    let elements: &mut [T] = bytemuck::cast_slice_mut(&mut copy);
    for (copy, element) in elements.iter_mut().zip(array) {
        *copy = *element;
    }
    Tensor::from_buffer(T::DATA_TYPE, array.shape(), Buffer::from_aligned(copy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorErrorKind;
    use half::f16;
    use ndarray::{Array, Array2, Array3, Axis, Ix2, arr0, array, s};

    fn numbers(a: usize, b: usize, c: usize) -> Array3<f32> {
        Array::from_iter((0..a * b * c).map(|i| i as f32)).into_shape_with_order((a, b, c)).unwrap()
    }

    #[test]
    fn owned_arrays_are_taken_over() {
        let array = numbers(2, 3, 4);
        let place = array.as_ptr();
        let tensor = Tensor::from_array(array).unwrap();
        assert_eq!(tensor.dims(), [2, 3, 4]);
        assert_eq!(tensor.as_slice::<f32>().unwrap().as_ptr(), place);
        assert_eq!(tensor.as_array::<f32>().unwrap().as_ptr(), place);

        // An array without its first rows is still dense.
        let mut rest = numbers(3, 2, 2);
        rest.slice_collapse(s![1.., .., ..]);
        let place = rest.as_ptr();
        let tensor = Tensor::from_array(rest).unwrap();
        assert_eq!(tensor.as_slice::<f32>().unwrap()[..2], [4.0, 5.0]);
        assert_eq!(tensor.as_slice::<f32>().unwrap().as_ptr(), place);
        assert_eq!(tensor.dims(), [2, 2, 2]);

        let tensor = Tensor::from_array(arr0(7i64)).unwrap();
        assert_eq!((tensor.rank(), tensor.item::<i64>().unwrap()), (0, 7));
        let tensor = Tensor::from_array(Array2::from_elem((3, 0), f16::ONE)).unwrap();
        assert_eq!((tensor.dims(), tensor.bytes().len()), (&[3, 0][..], 0));
        assert_eq!(tensor.as_array::<f16>().unwrap().shape(), [3, 0]);
    }

    #[test]
    fn arrays_in_another_order_are_copied_in_theirs() {
        let array = numbers(2, 3, 4);
        let orders: [Array<f32, _>; 4] = [
            array.clone().reversed_axes(),
            array.slice(s![..;-1, .., ..]).to_owned(),
            array.slice(s![.., 1.., ..;2]).to_owned(),
            array.broadcast((2, 3, 4)).unwrap().to_owned(),
        ];
        for array in orders {
            let expected: Vec<f32> = array.iter().copied().collect();
            for tensor in
                [Tensor::from_array(&array), Tensor::from_array(array.clone())].map(Result::unwrap)
            {
                assert_eq!(tensor.dims(), array.shape());
                assert_eq!(tensor.as_slice::<f32>().unwrap(), expected);
            }
        }
        let gaps = array.slice(s![.., ..;2, 1..3]);
        let tensor = Tensor::from_array(gaps).unwrap();
        assert_eq!(tensor.as_array::<f32>().unwrap(), gaps.into_dyn());
    }

    #[test]
    fn views_borrow_in_every_order_of_axes() {
        let array = numbers(2, 3, 4);
        let mut views =
            vec![array.view(), array.view().reversed_axes(), array.slice(s![1.., .., ..])];
        for axis in 0..3 {
            let mut view = array.view();
            view.invert_axis(Axis(axis));
            views.push(view);
            views.push(view.permuted_axes([2, 0, 1]));
        }
        for array in views {
            let view = TensorView::from_array(array).unwrap();
            let back = view.as_array::<f32>().unwrap();
            assert_eq!((back.as_ptr(), back.shape()), (array.as_ptr(), array.shape()));
            assert_eq!(back, array.into_dyn());
            let copy = view.to_tensor().unwrap();
            assert_eq!(copy.as_slice::<f32>().unwrap(), Vec::from_iter(array.iter().copied()));
        }
        let empty = Array3::<f32>::zeros((2, 0, 3));
        let view = TensorView::from_array(empty.slice(s![..;-1, .., ..;-1])).unwrap();
        assert_eq!((view.dims(), view.len()), (&[2, 0, 3][..], 0));
        let error = TensorView::from_array(array.slice(s![.., .., 1..3])).unwrap_err();
        assert_eq!(error.kind(), TensorErrorKind::Unsupported);
        assert!(error.message().contains("Tensor::from_array"), "{error}");
    }

    #[test]
    fn views_with_strides_become_arrays_with_them() {
        let tensor = Tensor::from_vec([3, 4], (0..12i32).collect()).unwrap();
        let view = tensor.view();
        for view in [
            view.transpose(&[1, 0]).unwrap(),
            view.slice(1, 3, 2, -2).unwrap(),
            view.slice(0, 2, 3, -1).unwrap().transpose(&[1, 0]).unwrap(),
            view.slice(1, 1, 3, 0).unwrap(),
            view.broadcast_to([2, 3, 4]).unwrap(),
            view.slice(0, 1, 0, 1).unwrap(),
            view.slice(0, 2, 1, -1).unwrap(),
        ] {
            let array = view.as_array::<i32>().unwrap();
            let copy = view.to_tensor().unwrap();
            assert_eq!(array.shape(), view.dims());
            assert_eq!(Vec::from_iter(array.iter().copied()), copy.to_vec::<i32>().unwrap());
            let memory = tensor.bytes().as_ptr_range();
            assert!(array.is_empty() || memory.contains(&array.as_ptr().cast()));
        }
        assert_eq!(view.as_array::<f32>().unwrap_err().kind(), TensorErrorKind::Type);
        let odd = TensorView::new(crate::DataType::Int32, [2], &tensor.bytes()[1..9]).unwrap();
        assert_eq!(odd.as_array::<i32>().unwrap_err().kind(), TensorErrorKind::Alignment);
    }

    #[test]
    fn arrays_are_written_in_place() {
        let mut array = array![[1u8, 2], [3, 4]];
        let mut view = TensorViewMut::from_array(array.view_mut()).unwrap();
        view.as_mut_slice::<u8>().unwrap().copy_from_slice(&[5, 6, 7, 8]);
        assert_eq!(array, array![[5, 6], [7, 8]]);
        let error = TensorViewMut::from_array(array.view_mut().reversed_axes()).unwrap_err();
        assert_eq!(error.kind(), TensorErrorKind::Unsupported);

        let mut tensor = Tensor::from_array(array).unwrap();
        let shared = tensor.clone();
        let mut matrix = tensor.as_array_mut::<u8>().unwrap().into_dimensionality::<Ix2>().unwrap();
        matrix[[1, 0]] = 9;
        assert_eq!(tensor.as_slice::<u8>().unwrap(), [5, 6, 9, 8]);
        assert_eq!(shared.as_slice::<u8>().unwrap(), [5, 6, 7, 8]);
    }
}
