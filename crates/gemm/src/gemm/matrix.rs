//! Strided views of matrices.

use std::marker::PhantomData;

/// A view of a matrix in memory: element (i, j) is `data[i * row_stride + j * col_stride]`.
///
/// Transposed, sliced and broadcast (stride 0) matrices are views, too.
#[derive(Clone, Copy, Debug)]
pub struct MatRef<'a, T = f32> {
    ptr: *const T,
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
    data: PhantomData<&'a [T]>,
}

// SAFETY: a `MatRef` is a shared borrow of a slice.
unsafe impl<T: Sync> Send for MatRef<'_, T> {}
// SAFETY: a `MatRef` is a shared borrow of a slice.
unsafe impl<T: Sync> Sync for MatRef<'_, T> {}

impl<'a, T> MatRef<'a, T> {
    /// Views `data` as a matrix with these strides, in elements.
    ///
    /// # Panics
    ///
    /// If an element of the matrix is outside `data`.
    pub fn new(
        data: &'a [T],
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        let end = strided_len(rows, cols, row_stride, col_stride);
        assert!(
            end.is_some_and(|end| end <= data.len()),
            "{rows} x {cols} with strides {row_stride}, {col_stride} in {}",
            data.len()
        );
        MatRef { ptr: data.as_ptr(), rows, cols, row_stride, col_stride, data: PhantomData }
    }

    /// Views `data` as a matrix whose rows follow each other.
    ///
    /// # Panics
    ///
    /// If `data` is shorter than `rows * cols`.
    pub fn row_major(data: &'a [T], rows: usize, cols: usize) -> Self {
        MatRef::new(data, rows, cols, cols, 1)
    }

    /// Views `data` as a matrix whose columns follow each other.
    ///
    /// # Panics
    ///
    /// If `data` is shorter than `rows * cols`.
    pub fn col_major(data: &'a [T], rows: usize, cols: usize) -> Self {
        MatRef::new(data, rows, cols, 1, rows)
    }

    /// Returns a view with rows and columns exchanged.
    pub fn transpose(self) -> Self {
        MatRef {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }

    /// Returns a view of some of the rows.
    ///
    /// # Panics
    ///
    /// If the matrix does not have them.
    #[must_use]
    pub fn slice_rows(self, rows: std::ops::Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "{rows:?} of {}", self.rows);
        let start = if rows.is_empty() { 0 } else { rows.start * self.row_stride };
        MatRef { ptr: self.ptr.wrapping_add(start), rows: rows.len(), ..self }
    }

    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn cols(&self) -> usize {
        self.cols
    }

    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    pub fn col_stride(&self) -> usize {
        self.col_stride
    }

    /// Returns the address of element (`row`, `col`), which need not exist.
    #[inline(always)]
    pub(crate) fn at(&self, row: usize, col: usize) -> *const T {
        self.ptr.wrapping_add(row * self.row_stride + col * self.col_stride)
    }

    /// Returns a row as a slice if its elements are adjacent.
    ///
    /// # Panics
    ///
    /// If the matrix does not have it.
    pub(crate) fn row(&self, row: usize) -> Option<&'a [T]> {
        assert!(row < self.rows, "row {row} of {}", self.rows);
        if self.cols == 0 {
            return Some(&[]);
        }
        // SAFETY: adjacent elements of the row are inside the slice that the matrix was made from.
        (self.col_stride == 1)
            .then(|| unsafe { std::slice::from_raw_parts(self.at(row, 0), self.cols) })
    }

    pub(crate) fn as_ptr(&self) -> *const T {
        self.ptr
    }

    /// Makes a view without checking the size.
    ///
    /// # Safety
    ///
    /// Every element must be readable for `'a`. Alignment is not required if only unaligned reads
    /// follow.
    pub(crate) unsafe fn from_raw(
        ptr: *const T,
        rows: usize,
        cols: usize,
        row_stride: usize,
        col_stride: usize,
    ) -> Self {
        MatRef { ptr, rows, cols, row_stride, col_stride, data: PhantomData }
    }
}

impl<T: Copy> MatRef<'_, T> {
    /// Returns element (`row`, `col`).
    ///
    /// # Panics
    ///
    /// If the element is outside the matrix.
    #[inline]
    pub fn get(&self, row: usize, col: usize) -> T {
        assert!(row < self.rows && col < self.cols);
        // SAFETY: inside the matrix, hence inside the slice it was made from.
        unsafe { *self.ptr.add(row * self.row_stride + col * self.col_stride) }
    }
}

/// Returns the number of elements that a slice needs to hold a strided matrix; `None` on overflow.
pub(crate) fn strided_len(
    rows: usize,
    cols: usize,
    row_stride: usize,
    col_stride: usize,
) -> Option<usize> {
    if rows == 0 || cols == 0 {
        return Some(0);
    }
    let last_row = (rows - 1).checked_mul(row_stride)?;
    let last_col = (cols - 1).checked_mul(col_stride)?;
    last_row.checked_add(last_col)?.checked_add(1)
}
