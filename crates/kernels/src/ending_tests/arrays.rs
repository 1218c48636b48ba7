//! Kernels that move, order, reduce and normalize elements.

use crate::choose::top_k;
use crate::copy::{
    Indices, MatrixDims, Pad, Padding, PickDims, StridedMut, StridedRef, concat, copy_between,
    copy_strided, fill, gather, gather_elements, gather_nd, one_hot, pad, pick, reverse_sequences,
    scatter_elements, scatter_nd, triangle,
};
use crate::cumulative::{Cumulative, CumulativeOp, cumulative};
use crate::determinant::determinants;
use crate::fourier::{Lines, Spectrum, Tables, transform};
use crate::norm::{
    self, Affine, Norm, RowInputs, RowNormalization, RowOutputs, Statistics, channel_statistics,
    layer_norm, lp_norm, normalize_rows, rms_norm, scale_shift, scale_shift_in_place,
};
use crate::reduce::{Extreme, Reduce, Ties, arg_extreme, reduce};
use crate::softmax::{Softmax, softmax, softmax_in_place};
use crate::unique::{Groups, KeyRows, keys, unique};
use crate::{Exec, Failure};

use super::{Case, MANY, case, floats, indices};

/// Rows of arrays of two axes; `COLS` are their columns.
const ROWS: usize = 250;
const COLS: usize = 200;

/// Returns the floats that most cases read.
fn x() -> Vec<f32> {
    floats(MANY)
}

pub(super) fn cases() -> Vec<Case> {
    [copy_cases(), lookup_cases(), order_cases(), sum_cases(), norm_cases(), spectrum_cases()]
        .into_iter()
        .flatten()
        .collect()
}

fn copy_cases() -> Vec<Case> {
    vec![
        case("kernels/copy/join concat", 2 * MANY, move |exec, y: &mut [f32]| {
            concat(exec.pool, ROWS, &[&x(), &x()], y)
        }),
        case("kernels/copy/pad pad", (ROWS + 2) * (COLS + 2), move |exec, y: &mut [f32]| {
            let padding =
                Padding { mode: Pad::Reflect, before: &[1, 1], after: &[1, 1], value: 0.0 };
            pad(exec.pool, padding, &[ROWS, COLS], &x(), y)
        }),
        case("kernels/copy/pick pick", MANY, move |exec, y: &mut [f32]| {
            let tables: Vec<usize> = (0..ROWS).rev().chain((0..COLS).rev()).collect();
            let dims = PickDims { input: &[ROWS, COLS], output: &[ROWS, COLS] };
            pick(exec.pool, dims, 1, &tables, 0.0, &x(), y)
        }),
        case("kernels/copy/sequences reverse_sequences", MANY, move |exec, y: &mut [f32]| {
            let lengths = indices(50, 40);
            reverse_sequences(exec.pool, false, [50, 40, 25], &lengths, &x(), y)
        }),
        case("kernels/copy/strided fill", MANY, |exec, y: &mut [f32]| fill(exec.pool, 3.0, y)),
        case("kernels/copy/strided copy_strided", MANY, move |exec, y: &mut [f32]| {
            copy_strided(exec.pool, &[COLS, ROWS], 0, &[1, COLS as isize], &x(), y)
        }),
        case("kernels/copy/strided copy_between", MANY, move |exec, y: &mut [f32]| {
            let (x, from, to) = (x(), [1, ROWS as isize], [COLS, 1]);
            let from = StridedRef { data: &x, start: 0, strides: &from };
            let to = StridedMut { data: y, start: 0, strides: &to };
            copy_between(exec.pool, &[ROWS, COLS], from, to)
        }),
        case("kernels/copy/triangle triangle", MANY, move |exec, y: &mut [f32]| {
            let dims = MatrixDims { matrices: 1, height: ROWS, width: COLS };
            triangle(exec.pool, true, 1, dims, &x(), y)
        }),
        case("kernels/copy/triangle one_hot", MANY, |exec, y: &mut [f32]| {
            one_hot(exec.pool, [ROWS, COLS, 1].into(), &indices(ROWS, COLS), 0.0, 1.0, y)
        }),
    ]
}

fn lookup_cases() -> Vec<Case> {
    vec![
        case("kernels/copy/gather gather", MANY, move |exec, y: &mut [f32]| {
            let places = indices(ROWS, ROWS);
            gather(exec.pool, [1, ROWS, COLS].into(), &x(), Indices::Long(&places), y)
        }),
        case("kernels/copy/gather gather_elements", MANY, move |exec, y: &mut [f32]| {
            let (dims, places) = ([ROWS, COLS], indices(MANY, COLS));
            gather_elements(exec.pool, 1, &dims, &x(), &dims, Indices::Long(&places), y)
        }),
        case("kernels/copy/gather gather_nd", MANY, move |exec, y: &mut [f32]| {
            gather_nd(exec.pool, &[MANY], 0, 1, &x(), &indices(MANY, MANY), y)
        }),
        case("kernels/copy/gather scatter_elements", MANY, move |_, y: &mut [f32]| {
            y.fill(0.0);
            let places = Indices::Long(&indices(MANY, MANY)[..]);
            scatter_elements(None, 0, &[MANY], &[MANY], places, &x(), y)
        }),
        case("kernels/copy/gather scatter_elements", MANY, move |_, y: &mut [f32]| {
            y.fill(0.0);
            let (dims, places) = ([ROWS, COLS], indices(MANY, ROWS));
            scatter_elements(None, 0, &dims, &dims, Indices::Long(&places), &x(), y)
        }),
        case("kernels/copy/gather scatter_nd", MANY, move |_, y: &mut [f32]| {
            y.fill(0.0);
            scatter_nd(None, &[MANY], 1, &indices(MANY, MANY), &x(), y)
        }),
    ]
}

fn order_cases() -> Vec<Case> {
    /// Writes the group of each row of `width` keys.
    fn groups(keys: &[u64], width: usize, y: &mut [i64]) -> Result<(), crate::Ended> {
        let len = keys.len() / width;
        let (mut order, mut first, mut counts) = (vec![[0; 2]; len], vec![0; len], vec![0; len]);
        let rows = KeyRows { keys, width, nan_differs: false };
        let mut groups = Groups { first: &mut first, of_row: y, counts: &mut counts };
        unique(rows, false, &mut order, &mut groups).map(|_| ())
    }
    vec![
        case("kernels/choose top_k", ROWS * 3, move |exec, y: &mut [f32]| {
            let mut positions = vec![-1; ROWS * 3];
            top_k(exec.pool, true, [ROWS, COLS, 1].into(), 3, &x(), y, &mut positions)
        }),
        case("kernels/choose top_k", ROWS * 100, move |exec, y: &mut [i64]| {
            let mut values = vec![f32::NAN; ROWS * 100];
            top_k(exec.pool, true, [ROWS, COLS, 1].into(), 100, &x(), &mut values, y)
        }),
        case("kernels/unique keys", MANY, move |exec, y: &mut [u64]| {
            keys(exec.pool, [1, ROWS, COLS].into(), &x(), y)
        }),
        case("kernels/unique unique", MANY, |_, y: &mut [i64]| {
            let keys: Vec<u64> = (0..MANY as u64).map(|at| at * 7919 % 1000).collect();
            groups(&keys, 1, y)
        }),
    ]
}

fn sum_cases() -> Vec<Case> {
    vec![
        case("kernels/cumulative cumulative", MANY, move |exec, y: &mut [f32]| {
            let which = Cumulative { op: CumulativeOp::Sum, exclusive: false, reverse: false };
            cumulative(exec, which, [ROWS, COLS, 1].into(), &x(), y)
        }),
        case("kernels/reduce reduce", ROWS, move |exec, y: &mut [f32]| {
            reduce(exec, Reduce::Sum, &[ROWS, COLS], &[false, true], &x(), y)
        }),
        case("kernels/reduce/arg arg_extreme", ROWS, move |exec, y: &mut [i64]| {
            arg_extreme(exec, Extreme::Max, Ties::First, [ROWS, COLS, 1].into(), &x(), y)
        }),
        case("kernels/softmax softmax", MANY, move |exec, y: &mut [f32]| {
            softmax(exec, Softmax::Softmax, [ROWS, COLS, 1].into(), &x(), y)
        }),
        case("kernels/softmax softmax_in_place", MANY, move |exec, y: &mut [f32]| {
            y.copy_from_slice(&x());
            softmax_in_place(exec, Softmax::LogSoftmax, [ROWS, 1, COLS].into(), y)
        }),
        case("kernels/determinant determinants", 1, |exec, y: &mut [f32]| {
            determinants(exec, 64, &floats(64 * 64), y)
        }),
        case("kernels/determinant determinants", 20, |exec, y: &mut [f32]| {
            determinants(exec, 32, &floats(20 * 32 * 32), y)
        }),
    ]
}

fn norm_cases() -> Vec<Case> {
    vec![
        case("kernels/norm channel_statistics", 2 * COLS, move |exec, y: &mut [f64]| {
            let (pairs, _) = y.as_chunks_mut();
            channel_statistics(exec, [5, COLS, 50].into(), &x(), pairs)
        }),
        case("kernels/norm scale_shift", MANY, move |exec, y: &mut [f32]| {
            scale_shift(exec, 1, &floats(COLS), &floats(COLS), &x(), y)
        }),
        case("kernels/norm scale_shift_in_place", MANY, move |exec, y: &mut [f32]| {
            y.copy_from_slice(&x());
            scale_shift_in_place(exec, ROWS, &floats(COLS), &floats(COLS), y)
        }),
        case("kernels/norm/layer layer_norm", MANY, move |exec, y: &mut [f32]| {
            let (x, scale) = (x(), floats(COLS));
            let inputs = RowInputs { x: &x, residual: None, scale: &scale, epsilon: 1e-5 };
            let outputs = RowOutputs { y, sum: None, means: None, inverse_deviations: None };
            layer_norm(exec, [ROWS, COLS].into(), inputs, Some(&scale), outputs)
        }),
        case("kernels/norm/layer rms_norm", MANY, move |exec, y: &mut [f32]| {
            let (x, scale) = (x(), floats(COLS));
            let inputs = RowInputs { x: &x, residual: None, scale: &scale, epsilon: 1e-5 };
            rms_norm(exec, [ROWS, COLS].into(), inputs, y, None)
        }),
        case("kernels/norm/local local_response_norm", MANY, move |exec, y: &mut [f32]| {
            let response = norm::LocalResponse { size: 3, alpha: 0.1, beta: 0.75, bias: 1.0 };
            norm::local_response_norm(exec, [5, COLS, 50].into(), response, &x(), y)
        }),
        case("kernels/norm/lp lp_norm", MANY, move |exec, y: &mut [f32]| {
            lp_norm(exec, Norm::L2, [ROWS, COLS, 1].into(), &x(), y)
        }),
        case("kernels/norm/rows normalize_rows", MANY, move |exec, y: &mut [f32]| {
            let (statistics, affine) = (Statistics::MeanVariance, Affine::None);
            let how = RowNormalization { statistics, len: COLS, epsilon: 1e-5, affine };
            normalize_rows(exec, how, &x(), y, None, None)
        }),
    ]
}

fn spectrum_cases() -> Vec<Case> {
    /// Transforms lines of one length, one after the other.
    fn lines(exec: &Exec<'_>, length: usize, y: &mut [f32]) -> Result<(), crate::Ended> {
        let tables = Tables::new(exec.isa, length)?.expect("memory");
        let spectrum = Spectrum { length, complex: false, inverse: false, half: false };
        let count = y.len() / (2 * length);
        let lines = Lines { grid: [1, count], len: length, x: [0, length, 1], y: [0, length, 1] };
        transform::<f32>(exec, &tables, spectrum, lines, None, &floats(count * length), y)
    }
    vec![
        case("kernels/fourier transform", 2 * 20 * 512, |exec, y| lines(exec, 512, y)),
        // A prime length: the tables need a transform.
        case("kernels/fourier new", 2 * 20 * 509, |exec, y| lines(exec, 509, y)),
    ]
}

/// Checks that an index out of range is reported before a cancellation.
#[test]
fn operands_are_refused_before_the_end() {
    let pool = crate::Pool::new(1);
    let exec = Exec::new(&pool, crate::Isa::detect());
    let found = crate::Pool::run_until(&|| true, || {
        gather(exec.pool, [1, 2, 1].into(), &[1.0, 2.0], Indices::Long(&[2]), &mut [0.0])
    });
    assert!(matches!(found, Err(Failure::Operand(_))));
}
