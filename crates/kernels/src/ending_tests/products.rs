//! Kernels of `sardonyx-gemm`.

use half::f16;
use half::slice::HalfBitsSliceExt;

use crate::conv::{
    Algorithm, ByteConv, ByteEnding, ByteOperands, ByteWeights, ConvEpilogue, ConvError,
    ConvOperands, ConvParams, ExpandedConv, ExpandedEpilogues, GatedConv, Lasts, Operands, Order,
    Ordered, OrderedMut, PackedConv, PackedTranspose, TransposeBuffers, TransposeParams,
    TransposeSizes, WeightGradient, WeightSource, conv_by_products, conv_bytes, conv_codes,
    conv_narrow, conv_transpose_naive, transpose_by_products,
};
use crate::gemm::{
    BatchMat, BatchOut, BatchRhs, BlockMatrix, ByteMatrix, ByteRhs, Epilogue, FewBits, LeMatrix,
    Lhs, MatRef, PackedA, PackedB, PerBlock, Repeated, Rhs, Storage, Sweep, ZeroPoints, gemm,
    gemm_batch, gemm_batch_generic, gemm_bytes, gemm_bytes_to_floats, gemm_few_bits,
    gemm_few_bits_in_bytes, gemm_generic, gemm_swept,
};
use crate::quantized::{Codes, Factors, Precision};
use crate::{Ended, Exec};

use super::{Case, case, floats};

/// Rows and columns of matrices that several threads multiply.
const SIDE: usize = 192;

/// Returns the floats that most cases read.
fn x() -> Vec<f32> {
    floats(SIDE * SIDE)
}

pub(super) fn cases() -> Vec<Case> {
    [product_cases(), packing_cases(), convolution_cases(), byte_convolution_cases()]
        .into_iter()
        .flatten()
        .collect()
}

fn square(data: &[f32]) -> MatRef<'_> {
    MatRef::row_major(data, SIDE, SIDE)
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 % 251) as u8).collect()
}

fn batch(data: &[f32]) -> BatchMat<'_> {
    BatchMat { data, rows: 64, cols: 64, row_stride: 64, col_stride: 1, batch_strides: &[64 * 64] }
}

/// Packs a constant matrix of four bits.
fn pack_few_bits(exec: &Exec<'_>) -> Result<FewBits, Ended> {
    let (codes, scales) = (bytes(SIDE * SIDE / 2), floats(SIDE * SIDE / 32));
    let matrix = BlockMatrix {
        codes: Codes { bytes: &codes, bits: 4, signed: false },
        depth: SIDE,
        cols: SIDE,
        step_stride: SIDE,
        col_stride: 1,
        block: 32,
        scales: PerBlock { numbers: &scales, block_stride: SIDE, col_stride: 1 },
        zeros: PerBlock { numbers: &[8.0], block_stride: 0, col_stride: 0 },
        order: &[],
    };
    exec.pool.pack_within(|| FewBits::new(exec.isa, &matrix))
}

/// Packs a constant matrix of four bits and multiplies by it.
fn multiply_few_bits(exec: &Exec<'_>, rows: usize, y: &mut [f32]) -> Result<(), Ended> {
    let (a, b) = (floats(rows * SIDE), pack_few_bits(exec)?);
    gemm_few_bits(exec, MatRef::row_major(&a, rows, SIDE), &b, y, SIDE, &Epilogue::default())
}

fn product_cases() -> Vec<Case> {
    let byte_product = |exec: &Exec<'_>, packed: bool, y: &mut [i32]| {
        let (a, b) = (bytes(SIDE * SIDE), bytes(SIDE * SIDE));
        let matrix = |bits| ByteMatrix { bits: MatRef::row_major(bits, SIDE, SIDE), signed: false };
        let zeros = ZeroPoints { a: &[3], b: &[5] };
        if packed {
            let b = exec.pool.pack_within(|| PackedB::from_bytes(exec.isa, matrix(&b)))?;
            return gemm_bytes(exec, matrix(&a), ByteRhs::Packed(&b), zeros, y);
        }
        gemm_bytes(exec, matrix(&a), ByteRhs::Plain(matrix(&b)), zeros, y)
    };
    vec![
        case("gemm/gemm/repeated multiply", 3 * SIDE, move |exec, y: &mut [f32]| {
            let (a, b) = (floats(SIDE), x());
            let a = MatRef::row_major(&a, 1, SIDE);
            let b = exec.pool.pack_within(|| PackedB::new(exec.isa, square(&b)))?;
            let repeated = Repeated::new(exec, a, Rhs::Packed(&b));
            y.chunks_exact_mut(SIDE)
                .try_for_each(|y| repeated.multiply(exec, a, y, SIDE, Sweep::FromFirst))
        }),
        case("gemm/gemm gemm", SIDE * SIDE, move |exec, y: &mut [f32]| {
            let (a, b) = (x(), x());
            let [a, b] = [&a, &b].map(|data| square(data));
            gemm(exec, Lhs::Plain(a), Rhs::Plain(b), y, SIDE, &Epilogue::default())
        }),
        case("gemm/gemm gemm", 3 * SIDE, move |exec, y: &mut [f32]| {
            // Few rows, which are read in place.
            let (a, b) = (floats(3 * SIDE), x());
            let a = MatRef::row_major(&a, 3, SIDE);
            gemm(exec, Lhs::Plain(a), Rhs::Plain(square(&b)), y, SIDE, &Epilogue::default())
        }),
        case("gemm/gemm gemm_swept", SIDE * SIDE, move |exec, y: &mut [f32]| {
            let (a, b) = (x(), x());
            let [a, b] = [&a, &b].map(|data| square(data));
            let epilogue = Epilogue::default();
            gemm_swept(exec, Lhs::Plain(a), Rhs::Plain(b), y, SIDE, &epilogue, Sweep::FromLast)
        }),
        case("gemm/gemm/batch gemm_batch", 12 * 64 * 64, |exec, y: &mut [f32]| {
            let (a, b) = (floats(12 * 64 * 64), floats(12 * 64 * 64));
            let out = BatchOut { data: y, ldc: 64, stride: 64 * 64 };
            let b = BatchRhs::Plain(batch(&b));
            gemm_batch(exec, &[12], batch(&a), b, out, &Epilogue::default())
        }),
        case("gemm/gemm/batch gemm_batch_generic", 4 * 64 * 64, |exec, y: &mut [f32]| {
            let (a, b) = (floats(4 * 64 * 64), floats(4 * 64 * 64));
            gemm_batch_generic(exec, &[4], batch(&a), batch(&b), y)
        }),
        case("gemm/gemm/generic gemm_generic", SIDE * SIDE, move |exec, y: &mut [f32]| {
            let (a, b) = (x(), x());
            gemm_generic(exec, 1.0, square(&a), square(&b), None, y, SIDE)
        }),
        case("gemm/gemm/integer gemm_bytes", SIDE * SIDE, move |exec, y: &mut [i32]| {
            byte_product(exec, false, y)
        }),
        case("gemm/gemm/integer from_bytes", SIDE * SIDE, move |exec, y: &mut [i32]| {
            byte_product(exec, true, y)
        }),
        case("gemm/gemm/integer gemm_bytes_to_floats", SIDE * SIDE, |exec, y: &mut [f32]| {
            let (a, b) = (bytes(SIDE * SIDE), bytes(SIDE * SIDE));
            let [a, b] = [&a, &b].map(|bits| MatRef::row_major(&bits[..], SIDE, SIDE));
            let [a, b] = [a, b].map(|bits| ByteMatrix { bits, signed: false });
            let zeros = ZeroPoints { a: &[3], b: &[5] };
            gemm_bytes_to_floats(exec, a, ByteRhs::Plain(b), zeros, &[0.5], &Epilogue::default(), y)
        }),
        case("gemm/gemm/few_bits new", SIDE, |exec, y| multiply_few_bits(exec, 1, y)),
        case("gemm/gemm/few_bits gemm_few_bits", 3 * SIDE, |exec, y| multiply_few_bits(exec, 3, y)),
        case("gemm/gemm/few_bits gemm_few_bits", SIDE * SIDE, |exec, y| {
            multiply_few_bits(exec, SIDE, y)
        }),
        case("gemm/gemm/few_bits/bytes gemm_few_bits_in_bytes", SIDE * SIDE, |exec, y| {
            let (a, b) = (floats(SIDE * SIDE), pack_few_bits(exec)?);
            gemm_few_bits_in_bytes(exec, square(&a), &b, y, SIDE, &Epilogue::default())
        }),
        case("gemm/gemm/few_bits gather_columns", SIDE * SIDE, |exec, y| {
            let places: Vec<i64> = (0..SIDE as i64).rev().collect();
            pack_few_bits(exec)?.gather_columns(exec, &places, y)
        }),
    ]
}

fn packing_cases() -> Vec<Case> {
    /// Packs a constant matrix and multiplies by it.
    fn multiply_packed(
        exec: &Exec<'_>,
        pack: impl FnOnce() -> Result<PackedB, Ended>,
        y: &mut [f32],
    ) -> Result<(), Ended> {
        let b = exec.pool.pack_within(pack)?;
        let a = floats(SIDE * SIDE);
        let a = Lhs::Plain(square(&a));
        gemm(exec, a, Rhs::Packed(&b), y, SIDE, &Epilogue::default())
    }
    let le = || -> Vec<u8> { floats(SIDE * SIDE).iter().flat_map(|x| x.to_le_bytes()).collect() };
    vec![
        case("gemm/gemm/pack new", SIDE * SIDE, |exec, y: &mut [f32]| {
            let b = floats(SIDE * SIDE);
            multiply_packed(exec, || PackedB::new(exec.isa, square(&b)), y)
        }),
        case("gemm/gemm/pack new", SIDE * SIDE, |exec, y: &mut [f32]| {
            let (a, b) = (floats(SIDE * SIDE), floats(SIDE * SIDE));
            let a = exec.pool.pack_within(|| PackedA::new(exec.isa, square(&a)))?;
            let b = Rhs::Plain(square(&b));
            gemm(exec, Lhs::Packed(&a), b, y, SIDE, &Epilogue::default())
        }),
        case("gemm/gemm/pack from_le", SIDE * SIDE, move |exec, y: &mut [f32]| {
            let b = le();
            let b = LeMatrix::row_major(&b, Storage::F32, SIDE, SIDE);
            multiply_packed(exec, || PackedB::from_le(exec.isa, &b), y)
        }),
        case("gemm/gemm/pack rounded_from_le", SIDE * SIDE, move |exec, y: &mut [f32]| {
            let b = le();
            let b = LeMatrix::row_major(&b, Storage::F32, SIDE, SIDE);
            multiply_packed(exec, || PackedB::rounded_from_le(exec.isa, &b), y)
        }),
    ]
}

/// Height and width of images.
const SIZE: usize = 20;
const PLANE: usize = SIZE * SIZE;
/// Channels of images.
const CHANNELS: usize = 64;

fn rows(data: &[f32]) -> Ordered<'_> {
    Ordered { data, order: Order::Rows }
}

fn rows_mut(data: &mut [f32]) -> OrderedMut<'_> {
    OrderedMut { data, order: Order::Rows }
}

fn padded_conv(groups: usize, kernel: usize) -> ConvParams {
    let pads = &[kernel / 2; 2][..];
    ConvParams {
        groups,
        pads_begin: pads.into(),
        pads_end: pads.into(),
        ..ConvParams::new(CHANNELS, CHANNELS, &[kernel; 2])
    }
}

fn pack(
    exec: &Exec<'_>,
    params: ConvParams,
    algorithm: Algorithm,
) -> Result<PackedConv, ConvError> {
    let weights = floats(params.out_channels * params.in_channels / params.groups * 9);
    let count = params.kernel.iter().product::<usize>() * CHANNELS * CHANNELS / params.groups;
    let source = WeightSource::Floats(&weights[..count]);
    let pack =
        || PackedConv::from_source(exec.isa, params, algorithm, source, None, Lasts::ForOneRun);
    exec.pool.pack_within(pack)
}

fn convolve(
    exec: &Exec<'_>,
    params: ConvParams,
    algorithm: Algorithm,
    y: &mut [f32],
) -> Result<(), ConvError> {
    let conv = pack(exec, params, algorithm)?;
    let x = floats(CHANNELS * PLANE);
    conv.run(exec.pool, 1, &[SIZE; 2], rows(&x), rows_mut(y), &ConvEpilogue::default())
}

const DIRECT: Algorithm = Algorithm::Direct(Operands::Exact);

fn convolution_cases() -> Vec<Case> {
    let transposed = || TransposeParams {
        in_channels: 32,
        out_channels: 32,
        groups: 1,
        kernel: [3, 3][..].into(),
        strides: [2, 2][..].into(),
        dilations: [1, 1][..].into(),
        pads_begin: [1, 1][..].into(),
    };
    let sizes = TransposeSizes { spatial: &[SIZE; 2], output: &[2 * SIZE; 2] };
    let transpose = move |exec: &Exec<'_>, y: &mut [f32]| -> Result<(), ConvError> {
        let (weights, x) = (floats(32 * 32 * 9), floats(32 * PLANE));
        let lasts = Lasts::ForOneRun;
        let pack = || PackedTranspose::new(exec.isa, transposed(), sizes, &weights, lasts);
        let packed = exec.pool.pack_within(pack)?;
        let mut results = vec![f32::NAN; packed.results_len(1, sizes.spatial)?];
        let buffers = TransposeBuffers { x: &x, bias: None, results: &mut results };
        packed.run(exec, 1, sizes, buffers, y)
    };
    vec![
        case("gemm/conv run", CHANNELS * PLANE, |exec, y: &mut [f32]| {
            convolve(exec, padded_conv(1, 3), DIRECT, y)
        }),
        case("gemm/conv run", CHANNELS * PLANE, |exec, y: &mut [f32]| {
            convolve(exec, padded_conv(1, 3), Algorithm::Winograd(Operands::Exact), y)
        }),
        case("gemm/conv/packing from_source", CHANNELS * PLANE, |exec, y: &mut [f32]| {
            convolve(exec, padded_conv(CHANNELS, 3), Algorithm::Depthwise, y)
        }),
        case("gemm/conv/packing new", CHANNELS * PLANE, |exec, y: &mut [f32]| {
            let weights = floats(CHANNELS * CHANNELS * 9);
            let pack = || PackedConv::new(exec.isa, padded_conv(1, 3), &weights);
            let conv = exec.pool.pack_within(pack)?;
            let (x, plain) = (floats(CHANNELS * PLANE), ConvEpilogue::default());
            conv.run(exec.pool, 1, &[SIZE; 2], rows(&x), rows_mut(y), &plain)
        }),
        case("gemm/conv/gated run", CHANNELS * PLANE, |exec, y: &mut [f32]| {
            let (conv, gate) = (pack(exec, padded_conv(1, 1), DIRECT)?, floats(CHANNELS));
            let (x, plain) = (floats(CHANNELS * PLANE), ConvEpilogue::default());
            let gated = GatedConv::new(&conv, &gate)?;
            gated.run(exec.pool, 1, &[SIZE; 2], rows(&x), rows_mut(y), &plain)
        }),
        case("gemm/conv/expanded run", CHANNELS * PLANE, |exec, y: &mut [f32]| {
            let expansion = pack(exec, padded_conv(1, 1), DIRECT)?;
            let depthwise = pack(exec, padded_conv(CHANNELS, 3), Algorithm::Depthwise)?;
            let order = Order::ChannelsLast { pitch: CHANNELS };
            let (x, plain) = (floats(CHANNELS * PLANE), ConvEpilogue::default());
            let (input, output) = (Ordered { data: &x, order }, OrderedMut { data: y, order });
            let both = ExpandedConv::new(&expansion, &depthwise)?;
            let epilogues = ExpandedEpilogues { expansion: &plain, depthwise: &plain };
            both.run(exec.pool, 1, &[SIZE; 2], input, output, epilogues)
        }),
        case("gemm/conv/transpose run", 32 * 4 * PLANE, transpose),
        case("gemm/conv/transpose new", 32 * 4 * PLANE, transpose),
        case("gemm/conv/transpose conv_transpose_naive", 32 * 4 * PLANE, move |exec, y| {
            let (weights, x) = (floats(32 * 32 * 9), floats(32 * PLANE));
            let operands = ConvOperands { input: &x[..], weights: &weights[..], bias: None };
            conv_transpose_naive(exec.pool, &transposed(), 1, sizes, operands, y)
        }),
        case("gemm/conv/products transpose_by_products", 32 * 4 * PLANE, move |exec, y| {
            let (weights, x) = (floats(32 * 32 * 9), floats(32 * PLANE));
            let operands = ConvOperands { input: &x[..], weights: &weights[..], bias: None };
            transpose_by_products(exec, &transposed(), 1, sizes.spatial, sizes.output, operands, y)
        }),
        case("gemm/conv/products conv_by_products", CHANNELS * PLANE, |exec, y: &mut [f32]| {
            let (weights, x) = (floats(CHANNELS * CHANNELS * 9), floats(CHANNELS * PLANE));
            let operands = ConvOperands { input: &x[..], weights: &weights[..], bias: None };
            conv_by_products(exec, &padded_conv(1, 3), 1, &[SIZE; 2], operands, y)
        }),
        case("gemm/conv run", CHANNELS * PLANE, |exec, y: &mut [f32]| {
            convolve(exec, padded_conv(CHANNELS / 4, 3), Algorithm::Planes, y)
        }),
        case("gemm/conv/narrow conv_narrow", CHANNELS * PLANE, |exec, y: &mut [u16]| {
            let conv = pack(exec, padded_conv(1, 3), DIRECT)?;
            let x = floats(CHANNELS * PLANE);
            let x: Vec<f16> = x.into_iter().map(f16::from_f32).collect();
            let (plain, y) = (ConvEpilogue::default(), y.reinterpret_cast_mut());
            conv_narrow::<f16>(exec, &conv, 1, &[SIZE; 2], &x, &plain, y)
        }),
        case("gemm/conv/weight_gradient run", CHANNELS * CHANNELS * 9, |exec, y| {
            let (x, dy, params) =
                (floats(CHANNELS * PLANE), floats(CHANNELS * PLANE), padded_conv(1, 3));
            let [inputs, outputs] = [&[SIZE; 2]; 2];
            WeightGradient { params: &params, images: 1, inputs, outputs }.run(exec, &x, &dy, y)
        }),
    ]
}

fn byte_convolution_cases() -> Vec<Case> {
    fn shape(out_channels: usize) -> ByteConv<'static> {
        ByteConv {
            groups: 1,
            in_channels: 16,
            out_channels,
            input: &[SIZE; 2],
            output: &[SIZE; 2],
            kernel: &[3; 2],
            strides: &[1; 2],
            dilations: &[1; 2],
            pads_begin: &[1; 2],
        }
    }
    fn with_operands<R>(conv: ByteConv<'_>, run: impl FnOnce(&ByteOperands<'_>) -> R) -> R {
        let (x, weights) = (bytes(16 * PLANE), bytes(conv.out_channels * 16 * 9));
        run(&ByteOperands {
            images: 1,
            x: &x,
            x_signed: false,
            x_zero: 3,
            weights: ByteWeights::Plain(&weights, false),
            weight_zeros: &[5],
        })
    }
    vec![
        case("gemm/conv/integer conv_bytes", 48 * PLANE, |exec, y: &mut [i32]| {
            with_operands(shape(48), |operands| conv_bytes(exec, &shape(48), operands, y))
        }),
        // Few output channels are multiplied tap by tap.
        case("gemm/conv/integer conv_bytes", 4 * PLANE, |exec, y: &mut [i32]| {
            with_operands(shape(4), |operands| conv_bytes(exec, &shape(4), operands, y))
        }),
        case("gemm/conv/integer conv_codes", 48 * PLANE, |exec, y: &mut [u8]| {
            let factors =
                Factors { rows: &[0.1], columns: &[0.2], result: 3.0, precision: Precision::Same };
            let ending = ByteEnding { bias: None, factors, zero: 5 };
            with_operands(shape(48), |operands| conv_codes(exec, &shape(48), operands, &ending, y))
        }),
    ]
}
