//! ConvTranspose: packs constant weights once, in each form that the sizes of runs have.

use std::sync::{Arc, Mutex, PoisonError};

use sardonyx_kernels::Exec;
use sardonyx_kernels::conv::{
    ConvOperands, Lasts, PackedTranspose, PerAxis, TransposeBuffers, TransposeParams,
    TransposeSizes, conv_transpose_naive, transpose_by_products,
};
use sardonyx_tensor::{DataType, Dims, Tensor};
use smallvec::{SmallVec, smallvec};

use super::window::{counts, per_axis};
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Selected, Site};
use crate::ops::narrow::{narrow, widen};
use crate::weights::Prepared;

struct ConvTranspose {
    elem: DataType,
    group: usize,
    /// Attributes that are lists, if given.
    kernel: Option<Vec<usize>>,
    strides: Option<Vec<usize>>,
    dilations: Option<Vec<usize>>,
    output_padding: Option<Vec<usize>>,
    output_shape: Option<Vec<usize>>,
    padding: Padding,
    /// Constant weights with their dimensions.
    weights: Option<(Vec<f32>, Dims)>,
    /// Only with constant weights.
    kept: Mutex<Kept>,
}

/// State of earlier runs.
#[derive(Default)]
struct Kept {
    /// State for the last input dimensions.
    ready: Option<Arc<Ready>>,
    /// Weights in all forms that runs with its parameters have read: sizes that take turns need not
    /// be packed for again.
    packed: SmallVec<[Arc<PackedTranspose>; 2]>,
}

/// State that is valid while input dimensions stay equal.
struct Ready {
    input: Dims,
    placed: Placed,
    packed: Option<Prepared<PackedTranspose>>,
}

/// Limit: spatial axes of loops over packed weights.
const MOST_AXES: usize = PackedTranspose::MOST_AXES;

/// Rule for cropping the output.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Padding {
    /// Numbers for all axes, or none.
    Explicit(Option<Vec<isize>>),
    /// Crops to the input size times the strides. `true` if the smaller half is at the beginning.
    Same(bool),
}

/// Binds `ConvTranspose`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Selected, BindError> {
    let elem = site.elem(0)?;
    if !matches!(elem, DataType::Float | DataType::Double | DataType::Float16 | DataType::Bfloat16)
    {
        return site.unsupported_type(elem);
    }
    let padding = match site.string("auto_pad").as_deref() {
        Some("SAME_UPPER") => Padding::Same(true),
        Some("SAME_LOWER") => Padding::Same(false),
        Some("VALID") => Padding::Explicit(None),
        Some("NOTSET") | None => {
            let pads = site.ints("pads").map(|pads| pads.into_iter().map(isize::try_from));
            let pads = pads.map(Iterator::collect::<Result<Vec<isize>, _>>).transpose();
            Padding::Explicit(
                pads.map_err(|_| BindError::Invalid("pads are too large".to_string()))?,
            )
        }
        Some(other) => {
            return Err(BindError::Invalid(format!("unknown auto_pad '{other}'")));
        }
    };
    let weights = match site.constant(1).filter(|_| elem != DataType::Double) {
        Some(constant) if elem == DataType::Float => {
            Some((constant.to_vec::<f32>()?, constant.dims().into()))
        }
        Some(constant) => {
            let wide = sardonyx_tensor::cast(constant, DataType::Float, Default::default())?;
            Some((wide.to_vec::<f32>()?, constant.dims().into()))
        }
        None => None,
    };
    let (group, is_constant) = (site.need_int("group")?, weights.is_some());
    let kernel = ConvTranspose {
        elem,
        group: usize::try_from(group)
            .ok()
            .filter(|group| *group > 0)
            .ok_or_else(|| BindError::Invalid(format!("group must be positive, not {group}")))?,
        kernel: per_axis(site, "kernel_shape")?,
        strides: per_axis(site, "strides")?,
        dilations: per_axis(site, "dilations")?,
        output_padding: counts(site, "output_padding")?,
        output_shape: counts(site, "output_shape")?,
        padding,
        weights,
        kept: Mutex::default(),
    };
    Ok(Selected::new(kernel).with_packed(is_constant.then_some(1)))
}

/// Transposed convolution of known sizes.
struct Placed {
    params: TransposeParams,
    batch: usize,
    spatial: PerAxis,
    /// All dimensions of the output.
    dims: Dims,
}

impl Placed {
    fn sizes(&self) -> TransposeSizes<'_> {
        TransposeSizes { spatial: &self.spatial, output: &self.dims[2..] }
    }
}

/// Returns a list of one number per axis, by default `default` for all.
fn per_axis_or(
    name: &str,
    list: Option<&Vec<usize>>,
    rank: usize,
    default: usize,
) -> Result<PerAxis, KernelError> {
    match list {
        Some(list) if list.len() != rank => {
            fail!("{name} has {} elements, but there are {rank} spatial axes", list.len())
        }
        Some(list) => Ok(list[..].into()),
        None => Ok(smallvec![default; rank]),
    }
}

impl ConvTranspose {
    fn place(&self, x: &[usize], w: &[usize]) -> Result<Placed, KernelError> {
        if x.len() < 3 || w.len() != x.len() {
            fail!(
                "the input {x:?} and the weights {w:?} must have the same number of dimensions, at \
                 least three"
            );
        }
        let rank = x.len() - 2;
        if let Some(kernel) = self.kernel.as_ref().filter(|kernel| kernel[..] != w[2..]) {
            fail!("kernel_shape is {kernel:?}, but the weights have dimensions {w:?}");
        }
        if x[1] != w[0] || !x[1].is_multiple_of(self.group) {
            fail!(
                "the input has {} channels, but the weights are for {} in {} groups",
                x[1],
                w[0],
                self.group
            );
        }
        let Some(out_channels) = w[1].checked_mul(self.group) else {
            fail!("{} groups of {} channels are too many", self.group, w[1]);
        };
        let strides = per_axis_or("strides", self.strides.as_ref(), rank, 1)?;
        let dilations = per_axis_or("dilations", self.dilations.as_ref(), rank, 1)?;
        let extra = per_axis_or("output_padding", self.output_padding.as_ref(), rank, 0)?;
        let pads: SmallVec<[isize; 6]> = match &self.padding {
            Padding::Explicit(Some(pads)) if pads.len() != 2 * rank => {
                fail!("pads must be {} numbers, not {pads:?}", 2 * rank)
            }
            Padding::Explicit(Some(pads)) => pads[..].into(),
            _ => smallvec![0; 2 * rank],
        };
        let mut dims: Dims = [x[0], out_channels].into_iter().collect();
        let mut pads_begin = PerAxis::new();
        for axis in 0..rank {
            let numbers = [w[axis + 2], strides[axis], dilations[axis], extra[axis]];
            let whole = reach(x[axis + 2], numbers)?;
            let fixed = match (&self.output_shape, &self.padding) {
                (Some(sizes), _) if sizes.len() != rank => {
                    fail!(
                        "output_shape has {} elements, but there are {rank} spatial axes",
                        sizes.len()
                    )
                }
                (Some(sizes), _) => Some(sizes[axis]),
                (None, Padding::Same(_)) => x[axis + 2].checked_mul(strides[axis]),
                (None, Padding::Explicit(_)) => None,
            };
            let (begin, size) = match fixed {
                Some(size) => (self.begin(whole - size as i128), size as i128),
                None => {
                    let (begin, end) = (pads[axis] as i128, pads[axis + rank] as i128);
                    let size = if x[axis + 2] == 0 { 0 } else { whole - begin - end };
                    (begin, size)
                }
            };
            let (Ok(begin), Ok(size)) = (isize::try_from(begin), usize::try_from(size)) else {
                fail!("the pads are too large: spatial axis {axis} would have size {size}");
            };
            pads_begin.push(begin);
            dims.push(size);
        }
        let params = TransposeParams {
            in_channels: x[1],
            out_channels,
            groups: self.group,
            kernel: w[2..].into(),
            strides,
            dilations,
            pads_begin,
        };
        Ok(Placed { params, batch: x[0], spatial: x[2..].into(), dims })
    }

    /// Returns the part of `cut` elements that is cropped at the beginning.
    fn begin(&self, cut: i128) -> i128 {
        // Extra `output_shape` padding goes at the end.
        if self.output_shape.is_some() && cut <= 0 {
            return 0;
        }
        let half = cut.div_euclid(2);
        match self.padding {
            Padding::Same(true) => half,
            Padding::Same(false) | Padding::Explicit(_) => cut - half,
        }
    }

    /// Returns the state for the input's dimensions, with packed weights.
    fn ready(&self, call: &Call<'_>) -> Result<Prepared<Ready>, KernelError> {
        let x = call.tensor(0)?.dims();
        let given = match &self.weights {
            Some(_) => None,
            None => Some(call.tensor(1)?),
        };
        let w = match (&self.weights, given) {
            (Some((_, dims)), _) => &dims[..],
            (None, Some(view)) => view.dims(),
            (None, None) => &[],
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = kept.ready.as_ref().filter(|ready| ready.input[..] == *x) {
            return Ok(Prepared::Kept(ready.clone()));
        }
        let placed = self.place(x, w)?;
        let packs = self.elem != DataType::Double && placed.spatial.len() <= MOST_AXES;
        let packed = match (&self.weights, given) {
            (Some((weights, _)), _) if packs => {
                let TransposeSizes { spatial, output } = placed.sizes();
                // Frees the weights packed for other parameters first.
                kept.ready = None;
                kept.packed.retain(|packed| {
                    *packed.params() == placed.params && packed.fits(spatial, output)
                });
                let found = kept.packed.iter().find(|packed| packed.suits(spatial, output));
                let packed = match found {
                    Some(packed) => packed.clone(),
                    None => {
                        let packed = Arc::new(pack(call, &placed, weights, Lasts::ForGood)?);
                        kept.packed.push(packed.clone());
                        packed
                    }
                };
                Some(Prepared::Kept(packed))
            }
            (None, Some(view)) if packs => {
                let packed = if self.elem == DataType::Float {
                    pack(call, &placed, view.as_slice::<f32>()?, Lasts::ForOneRun)
                } else {
                    pack(call, &placed, &widen(call, view)?, Lasts::ForOneRun)
                };
                Some(Prepared::ForThisRun(packed?))
            }
            _ => None,
        };
        let ready = Ready { input: x.into(), placed, packed };
        if self.weights.is_none() {
            return Ok(Prepared::ForThisRun(ready));
        }
        let ready = Arc::new(ready);
        kept.ready = Some(ready.clone());
        Ok(Prepared::Kept(ready))
    }

    fn run_doubles(&self, call: &mut Call<'_>, placed: &Placed) -> Result<(), KernelError> {
        let (x, w) = (call.slice::<f64>(0)?, call.slice::<f64>(1)?);
        let (exec, bias) = (call.exec, call.maybe_slice::<f64>(2)?);
        let y = call.output_slice::<f64>(0, &placed.dims)?;
        let (batch, TransposeSizes { spatial, output }) = (placed.batch, placed.sizes());
        let operands = ConvOperands { input: x, weights: w, bias };
        Ok(transpose_by_products(exec, &placed.params, batch, spatial, output, operands, y)?)
    }

    /// Computes narrower floats in `f32`.
    fn run_narrow(&self, call: &mut Call<'_>, ready: &Ready) -> Result<(), KernelError> {
        let x = widen(call, call.tensor(0)?)?;
        let bias = match call.maybe_tensor(2)? {
            Some(bias) => Some(widen(call, bias)?),
            None => None,
        };
        let given = match (&self.weights, &ready.packed) {
            (None, None) => Some(widen(call, call.tensor(1)?)?),
            _ => None,
        };
        let dims = &ready.placed.dims;
        let mut y = call.scratch::<f32>(sardonyx_tensor::shape::elems(dims)?)?;
        let mut results = ready.results(call)?;
        let results = results.as_mut_slice()?;
        let buffers = TransposeBuffers { x: &x, bias: bias.as_deref(), results };
        self.compute(call.exec, ready, given.as_deref(), buffers, &mut y)?;
        narrow(call, 0, self.elem, dims, &y)
    }

    fn run_floats(&self, call: &mut Call<'_>, ready: &Ready) -> Result<(), KernelError> {
        let (exec, x, bias) = (call.exec, call.slice(0)?, call.maybe_slice(2)?);
        let given = match (&self.weights, &ready.packed) {
            (None, None) => Some(call.slice::<f32>(1)?),
            _ => None,
        };
        let mut results = ready.results(call)?;
        let y = call.output_slice::<f32>(0, &ready.placed.dims)?;
        let buffers = TransposeBuffers { x, bias, results: results.as_mut_slice()? };
        self.compute(exec, ready, given, buffers, y)
    }

    fn compute(
        &self,
        exec: &Exec<'_>,
        ready: &Ready,
        given: Option<&[f32]>,
        buffers: TransposeBuffers<'_>,
        y: &mut [f32],
    ) -> Result<(), KernelError> {
        let Placed { params, batch, .. } = &ready.placed;
        let sizes = ready.placed.sizes();
        if let Some(packed) = &ready.packed {
            return Ok(packed.run(exec, *batch, sizes, buffers, y)?);
        }
        let constant = self.weights.as_ref().map(|(weights, _)| &weights[..]);
        let Some(weights) = constant.or(given) else {
            fail!("input 1, the weights, is missing");
        };
        let operands = ConvOperands { input: buffers.x, weights, bias: buffers.bias };
        Ok(conv_transpose_naive(exec.pool, params, *batch, sizes, operands, y)?)
    }
}

impl Ready {
    /// Allocates uninitialized memory for the results of the phases, and charges the scratch
    /// memory.
    fn results(&self, call: &Call<'_>) -> Result<Tensor, KernelError> {
        let Some(packed) = &self.packed else {
            return call.scratch_tensor(DataType::Float, &[0]);
        };
        let (batch, spatial) = (self.placed.batch, &self.placed.spatial);
        call.reserve(packed.scratch(call.exec, batch, spatial)?)?;
        call.scratch_tensor(DataType::Float, &[packed.results_len(batch, spatial)?])
    }
}

/// Packs weights for the sizes of a call.
fn pack(
    call: &Call<'_>,
    placed: &Placed,
    weights: &[f32],
    lasts: Lasts,
) -> Result<PackedTranspose, KernelError> {
    let (isa, params, sizes) = (call.exec.isa, &placed.params, placed.sizes());
    call.reserve(PackedTranspose::bytes_of(isa, params, sizes)?)?;
    let packed = call
        .exec
        .pool
        .pack_within(|| PackedTranspose::new(isa, params.clone(), sizes, weights, lasts));
    Ok(packed?)
}

/// Returns the length that the dilated input covers along an axis, output padding included.
fn reach(len: usize, [kernel, stride, dilation, extra]: [usize; 4]) -> Result<i128, KernelError> {
    if kernel == 0 {
        fail!("the kernel has no element");
    }
    let spread = (len as i128 - 1).checked_mul(stride as i128);
    let window = (kernel as i128 - 1).checked_mul(dilation as i128);
    match spread.zip(window).and_then(|(spread, window)| spread.checked_add(window)) {
        Some(sum) => Ok(sum + 1 + extra as i128),
        None => fail!("a stride of {stride} or a dilation of {dilation} is too large"),
    }
}

impl Kernel for ConvTranspose {
    fn describe(&self) -> String {
        match &self.weights {
            Some(_) => "packed when first run".to_string(),
            None if self.elem == DataType::Double => "plain".to_string(),
            None => "packed when run".to_string(),
        }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let ready = self.ready(call)?;
        match self.elem {
            DataType::Double => self.run_doubles(call, &ready.placed),
            DataType::Float => self.run_floats(call, &ready),
            _ => self.run_narrow(call, &ready),
        }
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Int, Ints};
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{run, run_with_constants, tensor};

    type Given = Vec<(&'static str, AttrValue<'static>)>;

    fn ints(values: &[i64]) -> AttrValue<'static> {
        Ints(values.to_vec().into())
    }

    /// Spreads three elements over a kernel of two.
    fn spread(attributes: &[(&'static str, AttrValue<'static>)]) -> Vec<f32> {
        let (x, w) = (tensor(&[1, 1, 3], &[1f32, 2.0, 3.0]), tensor(&[1, 1, 2], &[1f32, 10.0]));
        let inputs = [Some(&x), Some(&w)];
        let found = run("ConvTranspose", attributes, &inputs, 1).unwrap();
        let constant = run_with_constants("ConvTranspose", attributes, &inputs, &[1], 1).unwrap();
        assert!(constant[0].bit_eq(&found[0]));
        found[0].to_vec().unwrap()
    }

    #[test]
    fn elements_are_spread() {
        let strides = |by: i64| ("strides", ints(&[by]));
        let rows: Vec<(Given, &[f32])> = vec![
            (vec![], &[1.0, 12.0, 23.0, 30.0]),
            (vec![strides(2)], &[1.0, 10.0, 2.0, 20.0, 3.0, 30.0]),
            (vec![strides(3)], &[1.0, 10.0, 0.0, 2.0, 20.0, 0.0, 3.0, 30.0]),
            (vec![("dilations", ints(&[2]))], &[1.0, 2.0, 13.0, 20.0, 30.0]),
            (vec![("pads", ints(&[1, 2]))], &[12.0]),
            (vec![("pads", ints(&[-1, 1]))], &[0.0, 1.0, 12.0, 23.0]),
            (vec![("output_padding", ints(&[1]))], &[1.0, 12.0, 23.0, 30.0, 0.0]),
            (vec![("auto_pad", AttrValue::from("VALID"))], &[1.0, 12.0, 23.0, 30.0]),
            (vec![("auto_pad", AttrValue::from("SAME_UPPER"))], &[1.0, 12.0, 23.0]),
            (vec![("auto_pad", AttrValue::from("SAME_LOWER"))], &[12.0, 23.0, 30.0]),
            (vec![("output_shape", ints(&[3]))], &[12.0, 23.0, 30.0]),
            (vec![("output_shape", ints(&[6]))], &[1.0, 12.0, 23.0, 30.0, 0.0, 0.0]),
        ];
        for (attributes, expected) in rows {
            assert_eq!(spread(&attributes), expected, "{attributes:?}");
        }
    }

    #[test]
    fn every_float_type_and_number_of_axes() {
        // Two groups of one channel; four axes of one element each.
        let attributes = [("group", Int(2)), ("strides", ints(&[2, 1, 1, 1]))];
        let (x, w) = ([1f32, 2.0, 3.0, 4.0], [1f32, -1.0, 2.0, 5.0]);
        let expected = [1.5f32, -0.5, 2.5, -1.5, 5.5, 14.5, 7.5, 19.5];
        macro_rules! check {
            ($($T:ty, $from:expr;)*) => {$({
                let of = |dims: &[usize], x: &[f32]| -> Tensor {
                    tensor(dims, &x.iter().map(|x| $from(*x)).collect::<Vec<$T>>())
                };
                let (x, w) = (of(&[1, 2, 2, 1, 1, 1], &x), of(&[2, 1, 2, 1, 1, 1], &w));
                let b = of(&[2], &[0.5, -0.5]);
                let inputs = [Some(&x), Some(&w), Some(&b)];
                let found = run("ConvTranspose", &attributes, &inputs, 1).unwrap();
                assert!(found[0].bit_eq(&of(&[1, 2, 4, 1, 1, 1], &expected)), "{found:?}");
            })*};
        }
        check! { f32, |x| x; f64, f64::from; half::f16, half::f16::from_f32; half::bf16, half::bf16::from_f32; }
    }

    #[test]
    fn what_does_not_fit_is_said() {
        let (x, w) = (tensor(&[1, 2, 1], &[1f32, 2.0]), tensor(&[2, 1, 1], &[1f32, 1.0]));
        let said = |attributes: Given| {
            run("ConvTranspose", &attributes, &[Some(&x), Some(&w)], 1).unwrap_err()
        };
        let found = said(vec![("pads", ints(&[2, 2]))]);
        assert!(found.contains("spatial axis 0 would have size -3"), "{found}");
        let found = said(vec![("group", Int(3))]);
        assert!(found.contains("channels"), "{found}");
        let found = said(vec![("strides", ints(&[1, 1]))]);
        assert!(found.contains("strides has 2 elements"), "{found}");
        let found = said(vec![("dilations", ints(&[0]))]);
        assert!(found.contains("positive"), "{found}");
    }
}
