//! Conv: weights packed once when they are constant, multiplied with the factors of their channels;
//! bias, residual sum, activation and factor while the result is written.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use half::{bf16, f16};
use sardonyx_kernels::conv::{
    Algorithm, ConvEpilogue, ConvError, ConvOperands, ConvParams, ExpandedConv, ExpandedEpilogues,
    GatedConv, Lasts, Order, PackedConv, PerAxis, WeightSource, conv_by_products, conv_naive,
    products_scratch,
};
use sardonyx_kernels::{Isa, NarrowConvLoops};
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, Tensor, cast, cast_slices};
use smallvec::SmallVec;

use super::window::Placed;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Ending, Kernel, Selected, Site};
use crate::ops::narrow::{narrow, numbers, widen};
use crate::precision::Precision;
use crate::program::{self, ConvWindow, Epilogue, Numbers, Op, Stage, Window, WindowSettings};
use crate::weights::{Bits, Elements, Form, Packed, Prepared};

struct Conv {
    elem: DataType,
    /// The operand that is the weights; one that is read when it runs follows as the bias.
    at: usize,
    window: ConvWindow,
    group: usize,
    weights: Weights,
    /// What the weights of each channel are multiplied with.
    scale: Option<Vec<f64>>,
    /// What is added to each channel, if that is constant.
    bias: Option<Vec<f32>>,
    /// Whether the bias of the node is read when it runs.
    has_bias: bool,
    ending: Ending,
    isa: Isa,
    /// A pointwise convolution before this one.
    expansion: Option<Box<Conv>>,
    /// The operand that the channels of the input are multiplied with.
    gate: Option<usize>,
}

enum Weights {
    /// Packed for the padding that the attributes fix.
    Packed { params: ConvParams, algorithm: Algorithm, packed: Packed<PackedConv> },
    /// Constant, but the padding depends on the size of the input: packed for the last size, which
    /// is kept.
    Constant { weights: Tensor, packed: Mutex<Option<(Dims, Arc<PackedConv>)>> },
    /// Not constant.
    Given,
}

/// `Conv`
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let elem = site.elem(0)?;
    if !matches!(elem, DataType::Float | DataType::Double | DataType::Float16 | DataType::Bfloat16)
    {
        return site.unsupported_type(elem);
    }
    let (window, group) = window_and_groups(site, 1)?;
    let bias = if site.has_input(2) { Some(site.slot(2)?) } else { None };
    Ok(Op::Conv(Box::new(program::Conv {
        elem,
        x: site.slot(0)?,
        weights: site.slot(1)?,
        bias,
        group,
        window,
        epilogue: Epilogue::default(),
        expansion: None,
        gate: None,
    })))
}

/// The windows of a convolution whose weights are an input, and the number of its groups.
pub(in crate::ops) fn window_and_groups(
    site: &Site<'_>,
    weights: usize,
) -> Result<(ConvWindow, usize), BindError> {
    let group = site.need_int("group")?;
    let group =
        usize::try_from(group).map_err(|_| BindError::Invalid(format!("group is {group}")))?;
    let kernel: Option<Vec<usize>> =
        match site.ints("kernel_shape") {
            Some(sizes) => {
                Some(sizes.into_iter().map(usize::try_from).collect::<Result<_, _>>().map_err(
                    |_| BindError::Invalid("kernel_shape has a negative size".to_string()),
                )?)
            }
            // A run says it of weights that have no spatial axes.
            None => site
                .shape(weights)
                .filter(|shape| shape.len() > 2)
                .and_then(|shape| shape.iter().skip(2).map(|dim| dim.size()).collect()),
        };
    let window = match kernel {
        Some(kernel) => ConvWindow::Known(Window::new(site, kernel)?),
        None => ConvWindow::Open(WindowSettings::new(site)?),
    };
    Ok((window, group))
}

impl program::Conv {
    /// Whether loops run that can do more with a result before it is written.
    pub(crate) fn takes_stages(&self) -> bool {
        self.elem == DataType::Float && self.packed_window().is_some()
    }

    /// Returns the window if loops on packed weights run.
    fn packed_window(&self) -> Option<&Window> {
        let packs = |window: &&Window| window.kernel.len() <= PACKED_AXES;
        self.window.fixed().filter(packs).filter(|_| self.elem != DataType::Double)
    }
}

/// Choice: outputs from which vectors may be neighbouring outputs.
const LEAST_PLANE: usize = 16;
/// Spatial axes that loops on packed weights have at most.
const PACKED_AXES: usize = 3;

/// The kernel of a convolution.
pub(crate) fn select(site: &Site<'_>, conv: &program::Conv) -> Result<Selected, BindError> {
    let (mut kernel, mut packed) = bind(site, conv, 1)?;
    if let Some(expansion) = &conv.expansion {
        let (first, more) = bind(site, expansion, 1 + conv.own_operand_count())?;
        kernel.expansion = Some(Box::new(first));
        packed.extend(more);
    }
    kernel.gate = conv.gate.map(|_| 1 + conv.own_operand_count());
    Ok(Selected::new(kernel).with_packed(packed))
}

/// A convolution whose weights are the operand `at`, and the operands that it has packed.
fn bind(
    site: &Site<'_>,
    conv: &program::Conv,
    at: usize,
) -> Result<(Conv, SmallVec<[usize; 4]>), BindError> {
    let window = conv.packed_window();
    let given = conv.bias.map(|_| at + 1);
    let (channels, weights) = match window {
        Some(window) => {
            let channels = Channels::new(site, conv, at)?;
            let is_alone = at == 1 && conv.gate.is_none() && conv.expansion.is_none();
            let weights = pack(site, window, conv.group, &channels, at, is_alone)?;
            (channels, weights)
        }
        None => (Channels { given, ..Channels::default() }, Weights::Given),
    };
    let packed_weights = (!matches!(weights, Weights::Given)).then_some(at);
    let packed = packed_weights.into_iter().chain(channels.packed).collect();
    let ending = Ending::new(&conv.epilogue, at + 1 + usize::from(conv.bias.is_some()));
    let kernel = Conv {
        elem: conv.elem,
        at,
        window: conv.window.clone(),
        group: conv.group,
        weights,
        scale: channels.scale,
        bias: channels.bias,
        has_bias: given.is_some() && channels.given == given,
        ending: Ending { scale: 1.0, bias: channels.given, ..ending },
        isa: site.isa,
        expansion: None,
        gate: None,
    };
    Ok((kernel, packed))
}

/// What a convolution multiplies each output channel with, and what it adds then.
#[derive(Default)]
struct Channels {
    scale: Option<Vec<f64>>,
    bias: Option<Vec<f32>>,
    /// The operand that is added, if it is not constant.
    given: Option<usize>,
    /// Operands that are in `scale` and `bias`.
    packed: SmallVec<[usize; 4]>,
    /// Whether some of them have not been computed, because the session is only looked at.
    unmade: bool,
}

impl Channels {
    /// Of a convolution whose weights are the operand `at`. Computes in double precision; biases
    /// are rounded once, in the end.
    fn new(site: &Site<'_>, conv: &program::Conv, at: usize) -> Result<Channels, BindError> {
        let mut channels = Channels::default();
        let mut bias: Option<Vec<f64>> = None;
        let mut position = at + 1;
        if conv.bias.is_some() {
            bias = channels.take(site, position)?;
            position += 1;
        }
        for stage in &conv.epilogue.0 {
            if let Stage::Scale { by, .. } | Stage::Bias { by, .. } = stage {
                let numbers = match by {
                    Numbers::One(number) => {
                        let count = site.shape(at).and_then(|shape| shape.first()?.size());
                        Some(vec![f64::from(*number); count.unwrap_or(0)])
                    }
                    Numbers::Known(numbers) => Some(numbers.to_vec()),
                    Numbers::Value(_) => channels.take(site, position)?,
                };
                match (stage, numbers) {
                    (_, None) => {}
                    (Stage::Bias { .. }, Some(numbers)) => {
                        combine(&mut bias, numbers, |a, b| a + b)
                    }
                    (_, Some(numbers)) => {
                        if let Some(bias) = &mut bias {
                            bias.iter_mut().zip(&numbers).for_each(|(bias, by)| *bias *= by);
                        }
                        combine(&mut channels.scale, numbers, |a, b| a * b);
                    }
                }
            }
            position += usize::from(stage.operand().is_some());
        }
        channels.bias = bias.map(|bias| bias.iter().map(|number| *number as f32).collect());
        Ok(channels)
    }

    /// The numbers of a constant operand, which the kernel will not read then.
    fn take(&mut self, site: &Site<'_>, position: usize) -> Result<Option<Vec<f64>>, BindError> {
        let Some(constant) = site.weight(position) else {
            self.given = Some(position);
            return Ok(None);
        };
        self.packed.push(position);
        Ok(match constant.elements {
            Elements::All(tensor) => {
                let numbers = cast(tensor, DataType::Double, CastOptions::default())?;
                Some(numbers.to_vec::<f64>()?)
            }
            Elements::Fill(one) => {
                let one = cast(one, DataType::Double, CastOptions::default())?;
                let one = one.to_vec::<f64>()?.first().copied();
                one.map(|one| vec![one; constant.len()])
            }
            Elements::Unmade => {
                self.unmade = true;
                None
            }
        })
    }
}

/// Puts more numbers to those that there are, one by one.
fn combine(numbers: &mut Option<Vec<f64>>, more: Vec<f64>, with: fn(f64, f64) -> f64) {
    match numbers {
        Some(numbers) => numbers.iter_mut().zip(more).for_each(|(a, b)| *a = with(*a, b)),
        None => *numbers = Some(more),
    }
}

/// The weights, which are the operand `at`, in the form in which they are used, if they are
/// constant. `is_alone`: the step has no other operation on its input.
fn pack(
    site: &Site<'_>,
    window: &Window,
    group: usize,
    channels: &Channels,
    at: usize,
    is_alone: bool,
) -> Result<Weights, BindError> {
    let isa = site.isa;
    let invalid = |error: ConvError| BindError::Invalid(error.to_string());
    match (site.weight(at), window.fixed_pads()) {
        (Some(constant), Some((begin, end))) => {
            let params = params(window, constant.dims, group, &begin, &end)?;
            let exact = if is_alone {
                choose_algorithm(site, &params)
            } else {
                Algorithm::choose(&params, nominal_pixels(site, &params))
            };
            let exact = exact.map_err(invalid)?;
            let fastest = match site.precision {
                Precision::Fast if constant.data_type == DataType::Float => {
                    exact.to_rounded(isa, &params)
                }
                _ => exact,
            };
            if channels.unmade {
                let packed = Packed::Outline;
                return Ok(Weights::Packed { params, algorithm: fastest, packed });
            }
            let scale = channels.scale.as_deref();
            // What takes less memory is packed where that for the fastest is refused.
            for algorithm in std::iter::once(fastest).chain(fastest.smaller()) {
                let form = Form::Convolution {
                    isa,
                    params: params.clone(),
                    algorithm,
                    scale: scale.map(Bits::new),
                };
                let bytes = PackedConv::bytes_of(isa, &params, algorithm).map_err(invalid)?;
                let packed = site.weights.find_or_pack(&constant, form, bytes, |weights| {
                    let source = match weights.fill() {
                        Some(one) => fill(constant.data_type, one)?,
                        None => source(constant.data_type, weights.read_all())?,
                    };
                    let lasts = Lasts::ForGood;
                    PackedConv::from_source(isa, params.clone(), algorithm, source, scale, lasts)
                        .map_err(invalid)
                });
                if let Some(packed) = packed? {
                    return Ok(Weights::Packed { params, algorithm, packed });
                }
            }
            Ok(Weights::Given)
        }
        (Some(_), None) => match site.constant(at) {
            Some(constant) => {
                source(constant.data_type(), constant.bytes())?;
                let weights = site.weights.keep(constant)?;
                Ok(Weights::Constant { weights, packed: Mutex::default() })
            }
            None => Ok(Weights::Given),
        },
        _ => Ok(Weights::Given),
    }
}

/// Returns weights of a type that convolutions on packed weights read.
fn source(data_type: DataType, bytes: &[u8]) -> Result<WeightSource<'_>, KernelError> {
    match data_type {
        DataType::Float => Ok(WeightSource::LeBytes(bytes)),
        DataType::Float16 => Ok(WeightSource::LeFloat16(bytes)),
        DataType::Bfloat16 => Ok(WeightSource::LeBfloat16(bytes)),
        other => fail!("the weights of a convolution are {other}"),
    }
}

/// Returns weights that all equal `one`.
fn fill(data_type: DataType, one: &[u8]) -> Result<WeightSource<'static>, KernelError> {
    let mut wide = [0.0f32];
    let to = bytemuck::cast_slice_mut(&mut wide);
    cast_slices(data_type, one, DataType::Float, to, 1, CastOptions::default())?;
    Ok(WeightSource::Fill(wide[0]))
}

/// Returns the fastest algorithm for the orders of input and output.
fn choose_algorithm(site: &Site<'_>, params: &ConvParams) -> Result<Algorithm, ConvError> {
    let pixels = nominal_pixels(site, params);
    let fastest = Algorithm::choose(params, pixels)?;
    let is_rows = [site.orders.input, site.orders.output] == [program::Order::Rows; 2];
    if !is_rows || pixels.is_some_and(|pixels| pixels < LEAST_PLANE) {
        return Ok(fastest);
    }
    fastest.in_rows(site.isa, params, nominal_spatial(site).as_deref())
}

/// How many pixels the output has, if its size is known before the run; of one image, if their
/// number is not.
fn nominal_pixels(site: &Site<'_>, params: &ConvParams) -> Option<usize> {
    let images = site.shape(0)?.first()?.size().unwrap_or(1);
    let outputs = params.output_dims(&nominal_spatial(site)?).ok()?;
    Some(outputs.iter().fold(images, |pixels, outputs| pixels.saturating_mul(*outputs)))
}

/// Returns the spatial size of the input if it is known before the run.
fn nominal_spatial(site: &Site<'_>) -> Option<Vec<usize>> {
    site.shape(0)?.iter().skip(2).map(|dim| dim.size()).collect()
}

fn params(
    window: &Window,
    weights: &[usize],
    groups: usize,
    begin: &[usize],
    end: &[usize],
) -> Result<ConvParams, KernelError> {
    if weights.len() != window.kernel.len() + 2 || weights[2..] != window.kernel[..] {
        fail!("the weights have dimensions {weights:?}, but the kernel is {:?}", window.kernel);
    }
    Ok(ConvParams {
        groups,
        strides: window.strides[..].into(),
        dilations: window.dilations[..].into(),
        pads_begin: begin.into(),
        pads_end: end.into(),
        ..ConvParams::new(weights[1] * groups, weights[0], &window.kernel)
    })
}

impl Conv {
    /// The weights packed for an input of these spatial sizes.
    fn packed(
        &self,
        call: &Call<'_>,
        window: &Window,
        placed: &Placed,
    ) -> Result<Prepared<PackedConv>, KernelError> {
        let is_alone = self.at == 1 && self.gate.is_none() && self.expansion.is_none();
        let outputs = placed.counts.iter().product::<usize>();
        let by_planes = is_alone
            && outputs >= LEAST_PLANE
            && !call.has_layout(0)
            && (self.elem != DataType::Float || call.image(0)?.order == Order::Rows);
        let spatial = call.tensor(0)?.dims().get(2..).unwrap_or_default();
        let pack = |source: WeightSource<'_>, dims: &[usize], lasts: Lasts| {
            let params = params(window, dims, self.group, &placed.pads_begin, &placed.pads_end)?;
            // What is packed in a run is packed in the least time.
            let algorithm = Algorithm::choose(&params, Some(0))?;
            let algorithm = if by_planes {
                algorithm.in_rows(self.isa, &params, Some(spatial))?
            } else {
                algorithm
            };
            let bytes = PackedConv::bytes_of(self.isa, &params, algorithm);
            call.reserve(bytes?)?;
            let pool = call.exec.pool;
            let scale = self.scale.as_deref();
            let packed = pool.pack_within(|| {
                PackedConv::from_source(self.isa, params, algorithm, source, scale, lasts)
            });
            Ok::<_, KernelError>(packed?)
        };
        match &self.weights {
            Weights::Packed { packed, .. } => packed.get().cloned().map(Prepared::Kept),
            Weights::Constant { weights, packed } => {
                let mut kept = packed.lock().unwrap_or_else(PoisonError::into_inner);
                let packed = match &*kept {
                    Some((sizes, packed)) if sizes[..] == *spatial => packed.clone(),
                    _ => {
                        let source = source(weights.data_type(), weights.bytes())?;
                        let packed = Arc::new(pack(source, weights.dims(), Lasts::ForGood)?);
                        *kept = Some((spatial.into(), packed.clone()));
                        packed
                    }
                };
                Ok(Prepared::Kept(packed))
            }
            Weights::Given => {
                let weights = numbers(call, self.at)?;
                let source = WeightSource::Floats(&weights);
                let packed = pack(source, call.tensor(self.at)?.dims(), Lasts::ForOneRun);
                packed.map(Prepared::ForThisRun)
            }
        }
    }

    /// Floats, with packed weights.
    fn run_packed(
        &self,
        call: &mut Call<'_>,
        window: &Window,
        placed: &Placed,
        dims: &Dims,
    ) -> Result<(), KernelError> {
        let input: Dims = call.tensor(0)?.dims().into();
        let (images, spatial) = (input[0], &input[2..]);
        let packed = self.packed(call, window, placed)?;
        // A pointwise convolution has one window for each pixel.
        let first = match &self.expansion {
            Some(first) => {
                let Some(window) = first.window.fixed() else {
                    fail!("the expansion has no window")
                };
                let packed = first.packed(call, window, &window.place(spatial)?)?;
                Some((first, packed))
            }
            None => None,
        };
        let (reader, weights) = match &first {
            Some((first, packed)) => (AsRef::<Conv>::as_ref(*first), packed),
            None => (self, &packed),
        };
        reader.check_channels(weights, input[1])?;
        if dims.contains(&0) {
            return call.output_image(0, dims).map(|_| ());
        }
        let epilogue = self.epilogue(call, dims)?;
        let x = call.image(0)?;
        let pool = call.exec.pool;
        let (input, output) = (x.order, call.output_image(0, dims)?.order);
        if let Some(position) = self.gate {
            let gate = GatedConv::new(&packed, call.slice::<f32>(position)?)?;
            call.reserve(gate.scratch(pool, images, spatial, input, output)?)?;
            let y = call.output_image(0, dims)?;
            return Ok(gate.run(pool, images, spatial, x, y, &epilogue)?);
        }
        let Some((first, expansion)) = &first else {
            call.reserve(packed.scratch(pool, images, spatial, input, output)?)?;
            let y = call.output_image(0, dims)?;
            return Ok(packed.run(pool, images, spatial, x, y, &epilogue)?);
        };
        let both = ExpandedConv::new(expansion, &packed)?;
        call.reserve(both.scratch(pool, images, spatial, input, output)?)?;
        let first = first.epilogue(call, dims)?;
        let epilogues = ExpandedEpilogues { expansion: &first, depthwise: &epilogue };
        let y = call.output_image(0, dims)?;
        Ok(both.run(pool, images, spatial, x, y, epilogues)?)
    }

    /// What is done to results before they are written; `dims` are those of the output.
    fn epilogue<'e, 'a: 'e>(
        &'e self,
        call: &Call<'a>,
        dims: &Dims,
    ) -> Result<ConvEpilogue<'e>, KernelError> {
        let image = |position: Option<usize>| match position {
            Some(position) if call.tensor(position)?.dims() != &dims[..] => {
                fail!("input {position} is {:?}, not {dims:?}", call.tensor(position)?.dims());
            }
            // An image of one pixel lies in both orders: it is taken in that of the output.
            Some(position) if call.has_layout(0) => match call.channels_last(position)? {
                Some(image) => Ok(Some(image)),
                None => fail!("input {position} is in rows, output 0 is not"),
            },
            Some(position) => call.image(position).map(Some),
            None => Ok(None),
        };
        let given = match self.ending.bias {
            Some(position) => Some(call.slice::<f32>(position)?),
            None => None,
        };
        Ok(ConvEpilogue {
            bias: self.bias.as_deref().or(given),
            residual: image(self.ending.residual)?,
            activation: self.ending.activation,
            factor: image(self.ending.factor)?,
        })
    }

    /// Convolves in any float type in its own precision: `f64`, or more axes than packed weights
    /// have.
    fn run_plainly<T: Element + sardonyx_kernels::gemm::Number>(
        &self,
        call: &mut Call<'_>,
        window: &Window,
        placed: &Placed,
        dims: &Dims,
    ) -> Result<(), KernelError> {
        let weights: Dims = call.tensor(self.at)?.dims().into();
        let params = params(window, &weights, self.group, &placed.pads_begin, &placed.pads_end)?;
        let input_dims: Dims = call.tensor(0)?.dims().into();
        let (x, w) = (call.slice::<T>(0)?, call.slice::<T>(self.at)?);
        let bias = if self.has_bias { Some(call.slice::<T>(self.at + 1)?) } else { None };
        let exec = call.exec;
        call.reserve(products_scratch::<T>(exec, &params))?;
        let y = call.output_slice::<T>(0, dims)?;
        if y.is_empty() {
            return Ok(());
        }
        let (images, spatial) = (input_dims[0], &input_dims[2..]);
        if spatial.len() > PACKED_AXES {
            return Ok(conv_naive(&params, images, spatial, x, w, bias, y)?);
        }
        let operands = ConvOperands { input: x, weights: w, bias };
        Ok(conv_by_products(exec, &params, images, spatial, operands, y)?)
    }

    /// Convolves floats of 16 bits, which are widened and rounded image by image.
    fn run_narrow<T: Element + NarrowConvLoops>(
        &self,
        call: &mut Call<'_>,
        window: &Window,
        placed: &Placed,
        dims: &Dims,
    ) -> Result<(), KernelError> {
        let input = call.tensor(0)?;
        let (images, spatial) = (input.dims()[0], &input.dims()[2..]);
        let packed = self.packed(call, window, placed)?;
        let channels = input.dims()[1];
        self.check_channels(&packed, channels)?;
        if dims.contains(&0) {
            return call.output_slice::<T>(0, dims).map(|_| ());
        }
        let given = match self.ending.bias {
            Some(position) => Some(widen(call, call.tensor(position)?)?),
            None => None,
        };
        let bias = self.bias.as_deref().or(given.as_deref());
        let epilogue = ConvEpilogue { bias, ..ConvEpilogue::default() };
        let exec = call.exec;
        call.reserve(packed.narrow_scratch(exec, images, spatial)?)?;
        let (x, spatial) = (call.slice::<T>(0)?, PerAxis::from(spatial));
        let y = call.output_slice::<T>(0, dims)?;
        Ok(T::conv_narrow(exec, &packed, images, &spatial, x, &epilogue, y)?)
    }

    /// Whether the input has the channels that the weights are for.
    fn check_channels(&self, weights: &PackedConv, channels: usize) -> Result<(), KernelError> {
        if weights.params().in_channels != channels {
            fail!(
                "the input has {channels} channels, but the weights are for {} in {} groups",
                weights.params().in_channels,
                self.group
            );
        }
        Ok(())
    }

    /// Convolves floats of 16 bits with more axes than loops on packed weights have.
    fn run_narrow_plainly(
        &self,
        call: &mut Call<'_>,
        window: &Window,
        placed: &Placed,
        dims: &Dims,
    ) -> Result<(), KernelError> {
        let weights = call.tensor(self.at)?;
        let params =
            params(window, weights.dims(), self.group, &placed.pads_begin, &placed.pads_end)?;
        let (input, w) = (call.tensor(0)?, widen(call, weights)?);
        let x = widen(call, input)?;
        let bias = if self.has_bias { Some(widen(call, call.tensor(self.at + 1)?)?) } else { None };
        let mut y = call.scratch::<f32>(dims.iter().product())?;
        let (batch, spatial) = (input.dims()[0], &input.dims()[2..]);
        if !y.is_empty() {
            conv_naive(&params, batch, spatial, &x, &w, bias.as_deref(), &mut y)?;
        }
        narrow(call, 0, self.elem, dims, &y)
    }
}

impl Kernel for Conv {
    fn describe(&self) -> String {
        let own = match &self.weights {
            Weights::Packed { params, algorithm, .. } => {
                let strategy = PackedConv::strategy(params, *algorithm).unwrap_or_default();
                format!("{strategy} {:?}", self.isa)
            }
            Weights::Constant { .. } | Weights::Given => format!("packed when run, {:?}", self.isa),
        };
        match &self.expansion {
            Some(expansion) => format!("{} in bands, then {own}", expansion.describe()),
            None if self.gate.is_some() => format!("gate, {own}"),
            None => own,
        }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let input: Dims = call.tensor(0)?.dims().into();
        if input.len() < 3 {
            fail!("the input must have at least three dimensions, not {:?}", &input[..]);
        }
        let window = match &self.window {
            ConvWindow::Known(window) => Cow::Borrowed(window),
            open => open.for_weights(&input, call.tensor(self.at)?.dims())?,
        };
        let window = &*window;
        let placed = window.place(&input[2..])?;
        let out_channels = match &self.weights {
            Weights::Packed { params, .. } => params.out_channels,
            Weights::Constant { weights, .. } => weights.dims()[0],
            Weights::Given => call.tensor(self.at)?.dims().first().copied().unwrap_or(0),
        };
        let dims: Dims =
            [input[0], out_channels].into_iter().chain(placed.counts.iter().copied()).collect();
        match self.elem {
            DataType::Double => return self.run_plainly::<f64>(call, window, &placed, &dims),
            DataType::Float if window.kernel.len() > PACKED_AXES => {
                return self.run_plainly::<f32>(call, window, &placed, &dims);
            }
            DataType::Float => {}
            _ if window.kernel.len() > PACKED_AXES => {
                return self.run_narrow_plainly(call, window, &placed, &dims);
            }
            DataType::Float16 => return self.run_narrow::<f16>(call, window, &placed, &dims),
            _ => return self.run_narrow::<bf16>(call, window, &placed, &dims),
        }
        self.run_packed(call, window, &placed, &dims)
    }
}

#[cfg(test)]
mod tests {
    use half::{bf16, f16};
    use sardonyx_ops::AttrValue::Int;
    use sardonyx_tensor::Tensor;

    use crate::ops::testing::{ints, run_with_constants, tensor};

    /// Numbers whose products and sums are exact in every type.
    fn numbers(len: usize, salt: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 5 + salt) % 7) as f32 - 3.0).collect()
    }

    #[test]
    fn every_float_type_and_number_of_axes() {
        for (x_dims, w_dims, group) in [
            (&[2, 4, 9][..], &[6, 2, 3][..], 2),
            (&[1, 3, 8, 7], &[5, 3, 3, 3], 1),
            (&[1, 6, 8, 7], &[6, 1, 3, 3], 6),
            (&[1, 2, 5, 4, 6], &[3, 2, 3, 1, 3], 1),
            (&[1, 2, 3, 2, 3, 4], &[2, 2, 3, 1, 1, 3], 1),
            (&[0, 3, 8, 7], &[5, 3, 3, 3], 1),
        ] {
            let axes = x_dims.len() - 2;
            let attributes = [
                ("group", Int(group)),
                ints("pads", &[vec![1; axes], vec![0; axes]].concat()),
                ints("strides", &[vec![2], vec![1; axes - 1]].concat()),
            ];
            let x = numbers(x_dims.iter().product(), 1);
            let w = numbers(w_dims.iter().product(), 2);
            let b = numbers(w_dims[0], 3);
            let mut expected: Option<Tensor> = None;
            macro_rules! check {
                ($($T:ty, $from:expr;)*) => {$({
                    let of = |dims: &[usize], x: &[f32]| -> Tensor {
                        tensor(dims, &x.iter().map(|x| $from(*x)).collect::<Vec<$T>>())
                    };
                    let operands = [of(x_dims, &x), of(w_dims, &w), of(&[w_dims[0]], &b)];
                    let inputs = operands.each_ref().map(Some);
                    for constants in [&[][..], &[1], &[1, 2]] {
                        let found = run_with_constants("Conv", &attributes, &inputs, constants, 1);
                        let found = found.unwrap().remove(0);
                        let expected = expected.get_or_insert_with(|| found.clone());
                        let of_floats = of(expected.dims(), &expected.to_vec::<f32>().unwrap());
                        assert!(found.bit_eq(&of_floats), "{constants:?} {found:?}");
                    }
                })*};
            }
            check! { f32, |x| x; f64, f64::from; f16, f16::from_f32; bf16, bf16::from_f32; }
        }
    }
}
