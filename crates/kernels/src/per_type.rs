//! Kernels as methods of element types, so that callers dispatch on a type once.

use half::{bf16, f16};

#[cfg(feature = "vision")]
use crate::ImageDims;
#[cfg(feature = "vision")]
use crate::columns::BlockAxis;
use crate::copy::{
    IndexOutOfRange, Indices, MatrixDims, Padding, PickDims, Plain, RingDims, ScatterInto,
    StridedMut, StridedRef,
};
use crate::cumulative::Cumulative;
#[cfg(feature = "vision")]
use crate::deform::Deform;
#[cfg(feature = "signal")]
use crate::fourier::{Lines, Spectrum, Tables};
#[cfg(feature = "vision")]
use crate::grid::{ElementDims, ImageBatch, Sampling};
#[cfg(feature = "ml")]
use crate::ml::{
    ColumnRange, FeatureScale, KernelFunction, Pairs, PostTransform, RowNorm, Score, Sigmoids,
    Sums, SupportVectors,
};
use crate::norm::{LocalResponse, Norm, RowInputs, RowNormalization, RowOutputs};
#[cfg(feature = "training")]
use crate::optimizer::{Step, Weights};
use crate::pooling::{Divisor, Order, Window};
#[cfg(feature = "recurrent")]
use crate::recurrent::{Outputs, Pass, RecurrentElement, Sequences, Strides};
use crate::reduce::{Extreme, Reduce, Ties};
#[cfg(feature = "vision")]
use crate::resize::Taps;
#[cfg(feature = "vision")]
use crate::roi::{ImageRegions, RoiAlign};
use crate::rotary::{Angles, Rotary, RotaryDims};
use crate::softmax::Softmax;
use crate::{AxisDims, RowDims};
#[cfg(feature = "training")]
use sardonyx_elementwise::UpdateLoops;
use sardonyx_elementwise::{ElementLoops, Strided};
#[cfg(feature = "vision")]
use sardonyx_simd::number::Math;
use sardonyx_simd::number::Number;
use sardonyx_simd::{Ended, Exec, Failure, Pool};

per_type! {
    /// Loops that scatter updates: for elements by width, and for numbers, which updates can be
    /// combined with.
    trait ScatterLoops: Plain for [
        [u8; 1], [u8; 2], [u8; 4], [u8; 8], [u8; 16],
        f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64
    ] {
        copy::scatter_elements = fn scatter_elements(
            into: ScatterInto<Self>, axis: usize, dims: &[usize], index_dims: &[usize], indices: Indices<'_>,
            updates: &[Self], y: &mut [Self],
        ) -> Result<(), Failure<IndexOutOfRange>>;
        copy::scatter_nd = fn scatter_nd(
            into: ScatterInto<Self>, dims: &[usize], depth: usize, indices: &[i64], updates: &[Self], y: &mut [Self],
        ) -> Result<(), Failure<IndexOutOfRange>>;
        copy::write_around = fn write_around(
            sizes: RingDims, count: usize, starts: Option<&[i64]>, updates: &[Self], y: &mut [Self],
        );
    }

    /// Loops that move elements, by width.
    trait MoveLoops: ScatterLoops for [[u8; 1], [u8; 2], [u8; 4], [u8; 8], [u8; 16]] {
        copy::fill = fn fill(pool: &Pool, value: Self, y: &mut [Self]) -> Result<(), Ended>;
        copy::copy_strided = fn copy_strided(
            pool: &Pool, dims: &[usize], start: usize, strides: &[isize], x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        copy::copy_between = fn copy_between(
            pool: &Pool, dims: &[usize], from: StridedRef<'_, Self>, to: StridedMut<'_, Self>,
        ) -> Result<(), Ended>;
        copy::concat = fn concat(pool: &Pool, outer: usize, parts: &[&[Self]], y: &mut [Self]) -> Result<(), Ended>;
        copy::pad = fn pad(
            pool: &Pool, padding: Padding<'_, Self>, dims: &[usize], x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        copy::pick = fn pick(
            pool: &Pool, dims: PickDims<'_>, run: usize, tables: &[usize], value: Self, x: &[Self],
            y: &mut [Self],
        ) -> Result<(), Ended>;
        copy::gather = fn gather(
            pool: &Pool, dims: AxisDims, x: &[Self], indices: Indices<'_>, y: &mut [Self],
        ) -> Result<(), Failure<IndexOutOfRange>>;
        copy::gather_elements = fn gather_elements(
            pool: &Pool, axis: usize, dims: &[usize], x: &[Self], index_dims: &[usize], indices: Indices<'_>,
            y: &mut [Self],
        ) -> Result<(), Failure<IndexOutOfRange>>;
        copy::gather_nd = fn gather_nd(
            pool: &Pool, dims: &[usize], batch_dims: usize, depth: usize, x: &[Self], indices: &[i64],
            y: &mut [Self],
        ) -> Result<(), Failure<IndexOutOfRange>>;
        copy::reverse_sequences = fn reverse_sequences(
            pool: &Pool, time_first: bool, dims: [usize; 3], lengths: &[i64], x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        #[cfg(feature = "vision")]
        grid::read_elements = fn read_elements(
            pool: &Pool, dims: ElementDims, elements: &[usize], x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        copy::triangle = fn triangle(
            pool: &Pool, upper: bool, diagonal: i64, dims: MatrixDims, x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        copy::one_hot = fn one_hot(
            pool: &Pool, dims: AxisDims, indices: &[i64], off: Self, on: Self, y: &mut [Self],
        ) -> Result<(), Ended>;
        elementwise::select = fn select(
            pool: &Pool, dims: &[usize], condition: Strided<'_, u8>, a: Strided<'_, Self>, b: Strided<'_, Self>,
            out: &mut [Self],
        ) -> Result<(), Ended>;
    }

    /// Loops of all number types.
    trait Loops: ElementLoops for [f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64] {
        reduce::reduce = fn reduce(
            exec: &Exec<'_>, op: Reduce, dims: &[usize], axes: &[bool], x: &[Self], out: &mut [Self],
        ) -> Result<(), Ended>;
        reduce::arg_extreme = fn arg_extreme(
            exec: &Exec<'_>, which: Extreme, ties: Ties, dims: AxisDims, x: &[Self], out: &mut [i64],
        ) -> Result<(), Ended>;
        choose::top_k = fn top_k(
            pool: &Pool, largest: bool, dims: AxisDims, k: usize, x: &[Self], values: &mut [Self],
            positions: &mut [i64],
        ) -> Result<(), Ended>;
        unique::keys = fn keys(pool: &Pool, dims: AxisDims, x: &[Self], keys: &mut [u64]) -> Result<(), Ended>;
        #[cfg(feature = "vision")]
        columns::add_columns = fn add_columns(
            exec: &Exec<'_>, axes: &[BlockAxis], x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        #[cfg(any(feature = "ml", feature = "vision"))]
        resize::to_reals = fn to_reals(exec: &Exec<'_>, x: &[Self], y: &mut [Self::Real]) -> Result<(), Ended>;
        #[cfg(any(feature = "ml", feature = "vision"))]
        resize::from_reals = fn from_reals(exec: &Exec<'_>, x: &[Self::Real], y: &mut [Self]) -> Result<(), Ended>;
    }

    /// Loops of floats.
    trait FloatLoops: Loops for [f32, f64, f16, bf16] {
        softmax::softmax = fn softmax(
            exec: &Exec<'_>, op: Softmax, dims: AxisDims, x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        softmax::softmax_in_place = fn softmax_in_place(
            exec: &Exec<'_>, op: Softmax, dims: AxisDims, x: &mut [Self],
        ) -> Result<(), Ended>;
        determinant::determinants = fn determinants(
            exec: &Exec<'_>, size: usize, x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        #[cfg(feature = "vision")]
        grid::coordinates = fn coordinates(
            pool: &Pool, how: Sampling, sizes: &[usize], grid: &[Self], places: &mut [f64],
        ) -> Result<(), Ended>;
        pooling::lp_pool = fn lp_pool(
            exec: &Exec<'_>, planes: usize, window: &Window<'_>, p: u32, x: &[Self],
            scratch: &mut [<Self as Number>::Wide], y: &mut [Self],
        ) -> Result<(), Ended>;
        #[cfg(feature = "vision")]
        roi::max_roi_pool = fn max_roi_pool(
            exec: &Exec<'_>, cells: [usize; 2], dims: ImageDims, x: &[Self], regions: &[[i64; 5]],
            y: &mut [Self],
        ) -> Result<(), Ended>;
        pooling::average_pool = fn average_pool(
            exec: &Exec<'_>, planes: usize, window: &Window<'_>, divisor: Divisor, x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        norm::local_response_norm = fn local_response_norm(
            exec: &Exec<'_>, dims: AxisDims, response: LocalResponse, x: &[Self],
            y: &mut [Self],
        ) -> Result<(), Ended>;
        norm::channel_statistics = fn channel_statistics(
            exec: &Exec<'_>, dims: AxisDims, x: &[Self], statistics: &mut [[f64; 2]],
        ) -> Result<(), Ended>;
        norm::scale_shift = fn scale_shift(
            exec: &Exec<'_>, inner: usize, scale: &[Self::Real], shift: &[Self::Real], x: &[Self],
            y: &mut [Self],
        ) -> Result<(), Ended>;
        norm::normalize_rows = fn normalize_rows(
            exec: &Exec<'_>, how: RowNormalization<'_, Self::Real>, x: &[Self], y: &mut [Self],
            means: Option<&mut [Self::Real]>, inverse_deviations: Option<&mut [Self::Real]>,
        ) -> Result<(), Ended>;
        norm::lp_norm = fn lp_norm(
            exec: &Exec<'_>, norm: Norm, dims: AxisDims, x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        norm::layer_norm = fn layer_norm(
            exec: &Exec<'_>, dims: RowDims, inputs: RowInputs<'_, Self>, bias: Option<&[Self]>,
            outputs: RowOutputs<'_, Self>,
        ) -> Result<(), Ended>;
        rotary::rotary = fn rotary(
            exec: &Exec<'_>, which: Rotary, dims: RotaryDims, x: &[Self], angles: Angles<'_, Self>, y: &mut [Self],
        ) -> Result<(), Ended>;
        norm::rms_norm = fn rms_norm(
            exec: &Exec<'_>, dims: RowDims, inputs: RowInputs<'_, Self>, y: &mut [Self], sum: Option<&mut [Self]>,
        ) -> Result<(), Ended>;
        #[cfg(feature = "signal")]
        fourier::transform = fn fourier_transform(
            exec: &Exec<'_>, tables: &Tables, spectrum: Spectrum, lines: Lines, window: Option<&[Self]>, x: &[Self],
            y: &mut [Self],
        ) -> Result<(), Ended>;
    }

    /// Loops of the types of cumulative sums and products.
    trait CumulativeLoops: Loops for [f32, f64, f16, bf16, i32, i64, u32, u64] {
        cumulative::cumulative = fn cumulative(
            exec: &Exec<'_>, which: Cumulative, dims: AxisDims, x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
    }

    /// Loops of the types of maximum pooling.
    trait MaxPoolLoops: Loops for [f32, f64, f16, bf16, i8, u8] {
        pooling::max_pool = fn max_pool(
            exec: &Exec<'_>, planes: usize, window: &Window<'_>, x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        pooling::max_pool_with_indices = fn max_pool_with_indices(
            exec: &Exec<'_>, planes: usize, window: &Window<'_>, order: Order, x: &[Self], y: &mut [Self],
            indices: &mut [i64],
        ) -> Result<(), Ended>;
    }
}

#[cfg(feature = "vision")]
per_type! {
    /// Loops of the types in which elements are interpolated.
    trait ResizeLoops: Math for [f32, f64] {
        deform::deformed_patches = fn deformed_patches(
            exec: &Exec<'_>, geometry: &Deform<'_>, x: &[Self], offsets: &[Self], mask: Option<&[Self]>,
            patches: &mut [Self],
        ) -> Result<(), Ended>;
        roi::roi_align = fn roi_align(
            exec: &Exec<'_>, how: &RoiAlign<Self>, dims: ImageDims, x: &[Self], regions: ImageRegions<'_, Self>,
            y: &mut [Self],
        ) -> Result<(), Ended>;
        grid::read_between = fn read_between(
            exec: &Exec<'_>, how: Sampling, images: ImageBatch<'_>, x: &[Self], places: &[f64],
            y: &mut [Self],
        ) -> Result<(), Ended>;
        resize::along_axis = fn along_axis(
            exec: &Exec<'_>, dims: AxisDims, taps: &Taps<'_, Self>, x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
    }
}

#[cfg(feature = "ml")]
per_type! {
    /// Loops of the types of features.
    trait FeatureLoops: Loops for [f32, f64, i32, i64] {
        ml::scale = fn scale_features(
            exec: &Exec<'_>, features: usize, parameters: FeatureScale<'_, Self::Real>, x: &[Self], y: &mut [f32],
        ) -> Result<(), Ended>;
        ml::normalize = fn normalize_features(
            exec: &Exec<'_>, norm: RowNorm, width: usize, x: &[Self], y: &mut [f32],
        ) -> Result<(), Ended>;
        ml::binarize = fn binarize(exec: &Exec<'_>, threshold: f32, x: &[Self], y: &mut [Self]) -> Result<(), Ended>;
        ml::impute = fn impute(
            exec: &Exec<'_>, features: usize, missing: Self, numbers: &[Self], x: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        ml::place_columns = fn place_columns(
            exec: &Exec<'_>, columns: usize, range: ColumnRange, x: &[Self], y: &mut [f32],
        ) -> Result<(), Ended>;
    }

    /// Loops of the types in which scores are computed.
    trait ScoreLoops: Score for [f32, f64] {
        ml::post_transform = fn post_transform(
            exec: &Exec<'_>, how: PostTransform, width: usize, scores: &mut [Self],
        ) -> Result<(), Ended>;
        ml::mirror = fn mirror_scores(exec: &Exec<'_>, scores: &mut [Self]) -> Result<(), Ended>;
        ml::to_singles = fn to_singles(exec: &Exec<'_>, scores: &[Self], y: &mut [f32]) -> Result<(), Ended>;
        ml::similarities = fn similarities(
            exec: &Exec<'_>, kernel: KernelFunction, sizes: Sums, x: &[Self], vectors: SupportVectors<'_, Self>,
            y: &mut [Self],
        ) -> Result<(), Ended>;
        ml::weigh = fn weigh_similarities(
            exec: &Exec<'_>, weights: &[Self], constant: Self, similarities: &[Self], y: &mut [Self],
        ) -> Result<(), Ended>;
        ml::decide = fn decide_pairs(
            exec: &Exec<'_>, pairs: &Pairs<'_, Self>, similarities: &[Self], decisions: &mut [Self],
            best: &mut [i64],
        ) -> Result<(), Ended>;
        ml::couple = fn couple_pairs(
            exec: &Exec<'_>, classes: usize, sigmoids: Sigmoids<'_>, decisions: &[Self], work: &mut [f64],
            y: &mut [Self],
        ) -> Result<(), Ended>;
    }
}

#[cfg(feature = "recurrent")]
per_type! {
    /// Loops of the types in which recurrent layers are computed.
    trait RecurrentLoops: RecurrentElement for [f32, f64] {
        recurrent::recur = fn recur(
            exec: &Exec<'_>, sequences: &Sequences<'_>, rows: Strides, passes: &mut [Pass<'_, '_, Self>],
            outputs: Option<Outputs<'_, Self>>, scratch: &mut [Self],
        ) -> Result<(), Ended>;
    }
}

#[cfg(feature = "training")]
per_type! {
    /// Loops of training, in the types that it computes in.
    trait TrainingLoops: UpdateLoops for [f32, f64] {
        optimizer::step = fn optimizer_step(
            exec: &Exec<'_>, step: Step, weights: Weights<'_, Self>,
        ) -> Result<(), Ended>;
        pooling::max_pool_gradient = fn max_pool_gradient(
            exec: &Exec<'_>, size: usize, places: &[i64], dy: &[Self], dx: &mut [Self],
        ) -> Result<(), Ended>;
    }
}
