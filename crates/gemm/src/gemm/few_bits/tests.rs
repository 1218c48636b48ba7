//! Tests of products with few bits, and examples of matrices.

use super::*;
use crate::gemm::tests::random;
use crate::gemm::{Activation, Bias};

/// A matrix of random codes, and the numbers of their blocks.
pub(super) struct Example {
    bytes: Vec<u8>,
    pub(super) scales: Vec<f32>,
    zeros: Vec<f32>,
    order: Vec<u32>,
    form: ExampleForm,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExampleForm {
    pub(super) bits: usize,
    pub(super) signed: bool,
    /// Numbers of rows, of columns, and of rows of a block.
    pub(super) sizes: [usize; 3],
    /// Whether codes follow each other column by column, in whole blocks.
    pub(super) in_columns: bool,
    pub(super) zeros: ExampleZeros,
    /// Whether f16 holds all scales exactly.
    pub(super) halves: bool,
    pub(super) is_sorted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ExampleZeros {
    One(f32),
    Each,
}

impl Example {
    pub(super) fn new(form: ExampleForm) -> Example {
        let [depth, cols, block] = form.sizes;
        let blocks = depth.div_ceil(block);
        let codes = if form.in_columns { cols * blocks * block } else { depth * cols };
        let count = (codes * form.bits).div_ceil(8);
        let byte = |x: f32| (x * 1e6) as i32 as u8;
        let mut bytes: Vec<u8> = random(count, 1).into_iter().map(byte).collect();
        // Extremes side by side.
        for (at, byte) in bytes.iter_mut().enumerate().filter(|(at, _)| at % 5 == 0) {
            *byte = [0, 0xff, 0x80, 0x7f][at / 5 % 4];
        }
        let scales = random(cols * blocks, 2)
            .into_iter()
            .map(|x| if form.halves { f16::from_f32(x).to_f32() } else { x });
        let most = 1 << form.bits;
        let offset = if form.signed { most / 2 } else { 0 };
        let zeros = (0..cols * blocks).map(|at| (at * 7 % most) as f32 - offset as f32);
        let order = (0..depth as u32).map(|at| (at * 5 + 3) % depth as u32);
        let order: Vec<u32> = order.collect();
        let mut distinct = order.clone();
        distinct.sort_unstable();
        distinct.dedup();
        Example {
            bytes,
            scales: scales.collect(),
            zeros: match form.zeros {
                ExampleZeros::One(zero) => vec![zero],
                ExampleZeros::Each => zeros.collect(),
            },
            order: if form.is_sorted || distinct.len() < depth { Vec::new() } else { order },
            form,
        }
    }

    pub(super) fn matrix(&self) -> BlockMatrix<'_> {
        let [depth, cols, block] = self.form.sizes;
        let blocks = depth.div_ceil(block);
        let (step_stride, col_stride) =
            if self.form.in_columns { (1, blocks * block) } else { (cols, 1) };
        let each = |numbers| PerBlock { numbers, block_stride: cols, col_stride: 1 };
        BlockMatrix {
            codes: Codes { bytes: &self.bytes, bits: self.form.bits, signed: self.form.signed },
            depth,
            cols,
            step_stride,
            col_stride,
            block,
            scales: each(&self.scales),
            zeros: match &self.zeros[..] {
                one @ [_] => PerBlock { numbers: one, block_stride: 0, col_stride: 0 },
                zeros => each(zeros),
            },
            order: &self.order,
        }
    }

    /// Returns the step at a place.
    pub(super) fn step(&self, place: usize) -> usize {
        self.order.get(place).map_or(place, |step| *step as usize)
    }

    /// Decodes an element bit by bit.
    pub(super) fn get(&self, place: usize, col: usize) -> f64 {
        let BlockMatrix { step_stride, col_stride, block, cols, .. } = self.matrix();
        let bits = self.form.bits;
        let step = self.order.get(place).map_or(place, |step| *step as usize);
        let first = (step * step_stride + col * col_stride) * bits;
        let bit = |at: usize| i32::from(self.bytes[at / 8] >> (at % 8) & 1);
        let mut code: i32 = (0..bits).map(|i| bit(first + i) << i).sum();
        if self.form.signed && code >= 1 << (bits - 1) {
            code -= 1 << bits;
        }
        let at = place / block * cols + col;
        let zero = if self.zeros.len() == 1 { self.zeros[0] } else { self.zeros[at] };
        (f64::from(code) - f64::from(zero)) * f64::from(self.scales[at])
    }

    /// Returns the matrix in floats, in the order of its steps.
    fn in_floats(&self) -> Vec<f32> {
        let [depth, cols, _] = self.form.sizes;
        let mut floats = vec![f32::NAN; depth * cols];
        for place in 0..depth {
            let step = self.order.get(place).map_or(place, |step| *step as usize);
            for col in 0..cols {
                floats[step * cols + col] = self.get(place, col) as f32;
            }
        }
        floats
    }
}

pub(super) fn forms() -> Vec<ExampleForm> {
    let mut forms = Vec::new();
    for (index, (bits, signed)) in
        [(2, false), (4, false), (8, false), (2, true), (4, true), (8, true)]
            .into_iter()
            .enumerate()
    {
        let middle = if signed { 0.0 } else { (1 << (bits - 1)) as f32 };
        for (at, (sizes, in_columns)) in [
            ([64, 40, 16], true),
            ([100, 37, 32], true),
            ([70, 5, 128], true),
            ([33, 70, 12], false),
            ([600, 33, 600], false),
            ([1000, 20, 520], true),
            ([1, 1, 16], true),
            ([16, 64, 8], false),
        ]
        .into_iter()
        .enumerate()
        {
            let zeros = match (index + at) % 3 {
                0 => ExampleZeros::One(middle),
                1 => ExampleZeros::Each,
                _ => ExampleZeros::One(if signed { -1.0 } else { 0.0 }),
            };
            forms.push(ExampleForm {
                bits,
                signed,
                sizes,
                in_columns,
                zeros,
                halves: (index + at) % 2 == 0,
                is_sorted: at % 3 != 1,
            });
        }
    }
    forms
}

fn multiply(exec: &Exec<'_>, a: MatRef<'_>, b: &FewBits, epilogue: &Epilogue<'_>) -> Vec<f32> {
    let mut c = vec![f32::NAN; a.rows() * b.cols()];
    gemm_few_bits(exec, a, b, &mut c, b.cols(), epilogue).unwrap();
    c
}

/// Checks that each element differs from the sum in double precision by no more than chains of a
/// block's length allow.
#[test]
fn products_of_few_and_many_rows() {
    for form in forms() {
        let example = Example::new(form);
        let [depth, cols, _] = form.sizes;
        assert!(example.matrix().can_pack());
        for isa in Isa::available().iter().copied() {
            let b = FewBits::new(isa, &example.matrix()).unwrap();
            let most = FewBits::bytes_of(isa, form.bits, depth, cols, form.sizes[2]).unwrap();
            assert!(b.data.len() * 4 <= most, "{form:?}: {} of {most}", b.data.len() * 4);
            for rows in [1, 2, 3, 4, 7, few_rows(isa), few_rows(isa) + 1, 40] {
                let (a, bias) = (random(rows * depth, 3), random(cols, 4));
                let epilogue = Epilogue {
                    bias: Some(Bias::Col(&bias)),
                    activation: Activation::Relu,
                    ..Epilogue::default()
                };
                let a = MatRef::row_major(&a, rows, depth);
                let of = |threads| {
                    let pool = Pool::new(threads);
                    multiply(&Exec::new(&pool, isa), a, &b, &epilogue)
                };
                let c = of(1);
                let bits = |c: &[f32]| c.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(&of(3)), bits(&c), "{form:?} {isa:?} {rows}");
                for i in 0..rows {
                    for j in 0..cols {
                        let (mut sum, mut magnitude) = (0.0, 0.0);
                        for place in 0..depth {
                            let step = example.order.get(place);
                            let step = step.map_or(place, |step| *step as usize);
                            let x = f64::from(a.get(i, step)) * example.get(place, j);
                            sum += x;
                            magnitude += x.abs();
                        }
                        let want = (sum + f64::from(bias[j])).max(0.0);
                        let error = (f64::from(c[i * cols + j]) - want).abs();
                        let allowed = 16.0 * f64::from(f32::EPSILON) * (magnitude + 1.0);
                        assert!(
                            error <= allowed,
                            "{form:?} {isa:?} {rows}: ({i}, {j}) is {}, not {want}",
                            c[i * cols + j]
                        );
                    }
                }
            }
        }
    }
}

/// Checks that products of many rows have the bits of products with the weights in floats.
#[test]
fn many_rows_are_those_of_floats() {
    for form in forms().into_iter().filter(|form| form.is_sorted) {
        let example = Example::new(form);
        let [depth, cols, _] = form.sizes;
        let floats = example.in_floats();
        for isa in Isa::available().iter().copied() {
            let rows = few_rows(isa) + 1;
            let a = random(rows * depth, 3);
            let a = MatRef::row_major(&a, rows, depth);
            let exec = Exec::new(Pool::serial(), isa);
            let b = FewBits::new(isa, &example.matrix()).unwrap();
            let found = multiply(&exec, a, &b, &Epilogue::default());
            let mut want = vec![f32::NAN; rows * cols];
            let right = Rhs::Plain(MatRef::row_major(&floats, depth, cols));
            gemm(&exec, Lhs::Plain(a), right, &mut want, cols, &Epilogue::default()).unwrap();
            for (found, want) in found.iter().zip(&want) {
                assert_eq!(found.to_bits(), want.to_bits(), "{form:?} {isa:?}");
            }
        }
    }
}

/// Checks that any steps of a panel can be widened: blocks of k end anywhere in words.
#[test]
fn parts_of_panels() {
    for form in forms().into_iter().filter(|form| form.is_sorted) {
        let example = Example::new(form);
        let [depth, cols, _] = form.sizes;
        for isa in Isa::available().iter().copied() {
            let (b, w) = (FewBits::new(isa, &example.matrix()).unwrap(), panel_width(isa));
            for steps in [0..depth, depth / 3..depth / 2, depth / 2..depth, depth - 1..depth] {
                for start in (0..cols).step_by(w) {
                    let mut out = vec![f32::NAN; steps.len() * w];
                    b.pack(isa, steps.clone(), start, &mut out);
                    for (at, found) in out.iter().enumerate() {
                        let (place, col) = (steps.start + at / w, start + at % w);
                        let want = if col < cols { example.get(place, col) as f32 } else { 0.0 };
                        assert_eq!(*found, want, "{form:?} {isa:?} {place} {col}");
                    }
                }
            }
        }
    }
}

/// Checks that columns are read from panels as the values of their codes.
#[test]
fn columns_are_gathered() {
    for form in forms() {
        let example = Example::new(form);
        let [depth, cols, _] = form.sizes;
        let floats = example.in_floats();
        let places = [0, cols as i64 - 1, -1, -(cols as i64), cols as i64 / 2, 0];
        for isa in Isa::available().iter().copied() {
            let b = FewBits::new(isa, &example.matrix()).unwrap();
            for threads in [1, 3] {
                let pool = Pool::new(threads);
                let mut out = vec![f32::NAN; places.len() * depth];
                b.gather_columns(&Exec::new(&pool, isa), &places, &mut out).unwrap();
                for (column, place) in out.chunks_exact(depth).zip(places) {
                    let col = place.rem_euclid(cols as i64) as usize;
                    for (step, found) in column.iter().enumerate() {
                        let want = floats[step * cols + col];
                        assert_eq!(*found, want, "{form:?} {isa:?} {step} {col}");
                    }
                }
            }
        }
    }
}

const SMALL: ExampleForm = ExampleForm {
    bits: 4,
    signed: false,
    sizes: [32, 3, 16],
    in_columns: true,
    zeros: ExampleZeros::One(8.0),
    halves: false,
    is_sorted: true,
};

/// Checks that zero points must be codes, as other numbers would be rounded.
#[test]
fn zero_points_that_are_no_codes_are_not_packed() {
    for (zero, signed, can_pack) in [
        (7.5, false, false),
        (16.0, false, false),
        (-1.0, false, false),
        (f32::NAN, false, false),
        (15.0, false, true),
        (-8.0, true, true),
        (8.0, true, false),
    ] {
        let zeros = ExampleZeros::One(zero);
        let example = Example::new(ExampleForm { zeros, signed, ..SMALL });
        assert_eq!(example.matrix().can_pack(), can_pack, "{zero} {signed}");
    }
}

#[test]
fn nothing_is_multiplied() {
    let form = ExampleForm { sizes: [0, 3, 16], ..SMALL };
    let bias = [1.0, 2.0, 3.0];
    let epilogue = Epilogue { bias: Some(Bias::Col(&bias)), ..Epilogue::default() };
    for isa in Isa::available().iter().copied() {
        let exec = Exec::new(Pool::serial(), isa);
        let empty = Example::new(form);
        let b = FewBits::new(isa, &empty.matrix()).unwrap();
        let found = multiply(&exec, MatRef::row_major(&[], 2, 0), &b, &epilogue);
        assert_eq!(found, [1.0, 2.0, 3.0, 1.0, 2.0, 3.0]);
        let none = Example::new(ExampleForm { sizes: [16, 0, 16], ..form });
        let b = FewBits::new(isa, &none.matrix()).unwrap();
        let a = [0.0; 32];
        let found = multiply(&exec, MatRef::row_major(&a, 2, 16), &b, &Epilogue::default());
        assert!(found.is_empty());
    }
}
