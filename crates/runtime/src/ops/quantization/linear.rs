//! QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear: convert floats to integers and small
//! floats by scale and zero point, and back.

use sardonyx_kernels::quantized::{
    Codes, Precision, Scaling, Spread, dequantize_packed, limits, quantize_packed,
};
use sardonyx_kernels::{CodeLoops, DividendLoops, Ended, Exec, StoredLoops};
use sardonyx_tensor::{CastOptions, DataType, Dims, TensorView, cast_slices};

use super::spread;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::ops::element_type;
use crate::ops::narrow::{numbers, widen};
use crate::ops::tensor::moves::dense;
use crate::program::{self, Conversion, Op};
use crate::scratch::{Contents, Scratch};

const X: usize = 0;
const SCALE: usize = 1;
const ZERO: usize = 2;

/// Axis and block size of scales.
#[derive(Debug, Clone, Copy)]
struct Layout {
    axis: i64,
    /// Number of elements of a block; 0 for whole slices.
    block: usize,
}

impl Layout {
    fn new(site: &Site<'_>) -> Result<Layout, BindError> {
        let block = site.int("block_size").unwrap_or(0);
        let Ok(block) = usize::try_from(block) else {
            return Err(BindError::Invalid(format!(
                "block_size must not be negative, not {block}"
            )));
        };
        Ok(Layout { axis: site.int("axis").unwrap_or(1), block })
    }

    /// Returns how the scales of a call apply to its input, which is not empty.
    fn spread(self, call: &Call<'_>) -> Result<Spread, KernelError> {
        let (x, scales) = (call.tensor(X)?.dims(), call.tensor(SCALE)?.dims());
        let spread = spread(x, scales, self.axis, self.block)?;
        if let Some(zeros) = call.maybe_tensor(ZERO)? {
            let zeros = zeros.dims();
            let is_one = spread == Spread::One && zeros.iter().all(|size| *size == 1);
            if zeros != scales && !is_one && !zeros.is_empty() {
                fail!("zero points have shape {zeros:?}, but scales have shape {scales:?}");
            }
        }
        Ok(spread)
    }
}

/// Returns the type of `output_dtype`, if given.
fn output_type(site: &Site<'_>) -> Result<Option<DataType>, BindError> {
    match site.int("output_dtype") {
        Some(0) => Ok(None),
        _ => element_type(site, "output_dtype"),
    }
}

/// Refuses an input of an element type outside of `types`.
fn demand_type(site: &Site<'_>, input: usize, types: &[DataType]) -> Result<DataType, BindError> {
    let elem = site.elem(input)?;
    if types.contains(&elem) { Ok(elem) } else { site.unsupported_type(elem) }
}

/// Refuses an input of another type than the inferred one.
fn demand_elem(view: &TensorView<'_>, input: usize, elem: DataType) -> Result<(), KernelError> {
    if view.data_type() != elem {
        fail!("input {input} is {}, but {elem} was inferred", view.data_type());
    }
    Ok(())
}

/// Returns the zero points as floats, if given.
fn zeros<'a>(call: &Call<'a>, elem: DataType) -> Result<Option<Contents<'a, f32>>, KernelError> {
    let Some(view) = call.maybe_tensor(ZERO)? else { return Ok(None) };
    if view.data_type() != elem {
        fail!("the zero point, input {ZERO}, is {}, not {elem}", view.data_type());
    }
    numbers(call, ZERO).map(Some)
}

/// Returns the bits of an integer type smaller than a byte, and whether it is signed.
fn sub_byte_form(elem: DataType) -> Option<(usize, bool)> {
    match elem {
        DataType::Int4 => Some((4, true)),
        DataType::Uint4 => Some((4, false)),
        DataType::Int2 => Some((2, true)),
        DataType::Uint2 => Some((2, false)),
        _ => None,
    }
}

/// Target types of quantization with 8-bit floats.
pub(super) const FLOAT8: [DataType; 4] = [
    DataType::Float8e4m3fn,
    DataType::Float8e4m3fnuz,
    DataType::Float8e5m2,
    DataType::Float8e5m2fnuz,
];

fn is_small_float(elem: DataType) -> bool {
    use DataType::{Float4e2m1, Float6e2m3, Float6e3m2};
    FLOAT8.contains(&elem) || matches!(elem, Float4e2m1 | Float6e2m3 | Float6e3m2)
}

fn is_integer(elem: DataType) -> bool {
    use DataType::{Int8, Int16, Uint8, Uint16};
    matches!(elem, Int8 | Uint8 | Int16 | Uint16) || sub_byte_form(elem).is_some()
}

/// Precision in which quotients are computed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Division {
    Single(Precision),
    Double,
}

impl Division {
    /// Chooses the precision: that of the node's attribute, else that of the scale's type. A power
    /// of two does not change the precision of its dividend, and integers are divided exactly.
    fn new(site: &Site<'_>, x: DataType, scale: DataType) -> Result<Division, BindError> {
        let number = site.int("precision").unwrap_or(0);
        let given = if number == 0 { None } else { element_type(site, "precision")? };
        let elem = match (given, scale) {
            (Some(elem), _) => elem,
            (None, DataType::Float8e8m0) if x != DataType::Int32 => x,
            (None, DataType::Float8e8m0) => DataType::Float,
            (None, DataType::Int32) => DataType::Double,
            (None, scale) => scale,
        };
        match elem {
            DataType::Float => Ok(Division::Single(Precision::Same)),
            DataType::Float16 => Ok(Division::Single(Precision::F16)),
            DataType::Bfloat16 => Ok(Division::Single(Precision::Bf16)),
            DataType::Double => Ok(Division::Double),
            other => Err(BindError::Invalid(format!(
                "attribute 'precision' is {number} ({other}), which is not a floating-point type"
            ))),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Division::Single(Precision::Same) => "float",
            Division::Single(Precision::F16) => "float16",
            Division::Single(Precision::Bf16) => "bfloat16",
            Division::Double => "double",
        }
    }
}

/// Binds `QuantizeLinear`.
pub(crate) fn bind_quantize(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    use DataType::{Bfloat16, Float, Float8e8m0, Float16, Int32, Uint8};
    let x = demand_type(site, X, &[Float, Float16, Bfloat16, Int32])?;
    let scale = demand_type(site, SCALE, &[Float, Float16, Bfloat16, Float8e8m0, Int32])?;
    let given = output_type(site)?;
    let zero = if site.has_input(ZERO) { Some(site.elem(ZERO)?) } else { None };
    if let (Some(zero), Some(given)) = (zero, given)
        && zero != given
    {
        return Err(BindError::Invalid(format!(
            "output_dtype is {given}, but the zero point is {zero}"
        )));
    }
    let to = zero.or(given).unwrap_or(Uint8);
    if !is_integer(to) && !is_small_float(to) {
        return site.unsupported_type(to);
    }
    Ok(Box::new(Quantize {
        types: [x, scale, to],
        layout: Layout::new(site)?,
        division: Division::new(site, x, scale)?,
        saturate: site.int("saturate") != Some(0),
    }))
}

struct Quantize {
    /// Types of the input, the scales and the result.
    types: [DataType; 3],
    layout: Layout,
    division: Division,
    saturate: bool,
}

/// Widens an input to the type in which it is divided, rounded to a precision.
fn widen_rounded<'a>(
    call: &Call<'a>,
    index: usize,
    elem: DataType,
    precision: Precision,
) -> Result<Contents<'a, f32>, KernelError> {
    let own = match elem {
        DataType::Float16 => precision == Precision::F16,
        DataType::Bfloat16 => precision == Precision::Bf16,
        _ => false,
    };
    if own || precision == Precision::Same {
        return numbers(call, index);
    }
    let mut wide = widen(call, call.tensor(index)?)?;
    wide.iter_mut().for_each(|x| *x = precision.round(*x));
    Ok(Contents::Made(wide))
}

/// Widens an input to `f64`.
fn doubles(call: &Call<'_>, index: usize) -> Result<Scratch<f64>, KernelError> {
    let view = call.tensor(index)?;
    let mut wide = call.scratch::<f64>(view.len())?;
    let target = bytemuck::cast_slice_mut(&mut wide);
    let (from, to, options) = (view.data_type(), DataType::Double, CastOptions::default());
    cast_slices(from, &dense(call, view)?, to, target, view.len(), options)?;
    Ok(wide)
}

impl Quantize {
    /// Divides the input by its scales.
    fn quotients(&self, call: &Call<'_>, spread: Spread) -> Result<Scratch<f32>, KernelError> {
        let [x, scale, _] = self.types;
        let (exec, zeros) = (call.exec, &[]);
        let mut quotients = call.scratch::<f32>(call.tensor(X)?.len())?;
        match self.division {
            Division::Single(precision) => {
                let x = widen_rounded(call, X, x, precision)?;
                let scales = &*widen_rounded(call, SCALE, scale, precision)?;
                f32::divide(
                    exec,
                    &Scaling { spread, scales, zeros },
                    precision,
                    &x,
                    &mut quotients,
                )?;
            }
            Division::Double => {
                let (x, scales) = (doubles(call, X)?, &*doubles(call, SCALE)?);
                let scaling = Scaling { spread, scales, zeros: &[] };
                f64::divide(exec, &scaling, Precision::Same, &x, &mut quotients)?;
            }
        }
        Ok(quotients)
    }
}

/// Quantizes floats and writes them as the first output. `saturate` limits small floats.
pub(super) fn write_quantized(
    call: &mut Call<'_>,
    to: DataType,
    saturate: bool,
    scaling: &Scaling<'_>,
    x: &[f32],
    dims: &Dims,
) -> Result<(), KernelError> {
    let exec = call.exec;
    if let Some(form) = sub_byte_form(to) {
        quantize_packed(exec, scaling, form, x, call.output(0, to, dims)?.bytes_mut())?;
        return Ok(());
    }
    match to {
        DataType::Int8 => i8::quantize(exec, scaling, x, call.output_slice(0, dims)?)?,
        DataType::Uint8 => u8::quantize(exec, scaling, x, call.output_slice(0, dims)?)?,
        DataType::Int16 => i16::quantize(exec, scaling, x, call.output_slice(0, dims)?)?,
        DataType::Uint16 => u16::quantize(exec, scaling, x, call.output_slice(0, dims)?)?,
        _ => {
            // A zero point of zero is skipped, as adding it would lose the sign of zeros.
            let is_none = FLOAT8.contains(&to) && scaling.zeros.iter().all(|zero| *zero == 0.0);
            let zeros = if is_none { &[] } else { scaling.zeros };
            let scaling = Scaling { zeros, ..*scaling };
            let mut quotients = call.scratch::<f32>(x.len())?;
            f32::divide(exec, &scaling, Precision::Same, x, &mut quotients)?;
            let options = CastOptions { saturate, ..CastOptions::default() };
            let conversion = Conversion { from: DataType::Float, to, options };
            let source = bytemuck::cast_slice(&quotients);
            let mut output = call.output(0, to, dims)?;
            conversion.convert(exec.pool, source, output.bytes_mut(), x.len())?;
        }
    }
    Ok(())
}

impl Kernel for Quantize {
    fn describe(&self) -> String {
        let [x, _, to] = self.types;
        format!("{} to {}, divided in {}", x.name(), to.name(), self.division.name())
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [elem, scale, to] = self.types;
        demand_elem(call.tensor(X)?, X, elem)?;
        demand_elem(call.tensor(SCALE)?, SCALE, scale)?;
        let dims: Dims = call.tensor(X)?.dims().into();
        if dims.contains(&0) {
            return call.output(0, to, &dims).map(|_| ());
        }
        let spread = self.layout.spread(call)?;
        let zeros = zeros(call, to)?;
        let zeros = zeros.as_deref().unwrap_or_default();
        let saturate = self.saturate;
        if self.division == Division::Single(Precision::Same) {
            let (x, scales) = (numbers(call, X)?, numbers(call, SCALE)?);
            let scaling = Scaling { spread, scales: &scales, zeros };
            return write_quantized(call, to, saturate, &scaling, &x, &dims);
        }
        let quotients = self.quotients(call, spread)?;
        let mut ones = call.scratch::<f32>(spread.scales())?;
        ones.fill(1.0);
        let scaling = Scaling { spread, scales: &ones, zeros };
        write_quantized(call, to, saturate, &scaling, &quotients, &dims)
    }
}

/// Lowers `DequantizeLinear`.
pub(crate) fn lower_dequantize(site: &Site<'_>) -> Result<Op, BindError> {
    let Layout { axis, block } = Layout::new(site)?;
    let zero = site.has_input(ZERO).then(|| site.slot(ZERO)).transpose()?;
    let (x, scale) = (site.slot(X)?, site.slot(SCALE)?);
    Ok(Op::Dequantize(Box::new(program::Dequantize { x, scale, zero, axis, block })))
}

/// Selects the kernel of a dequantization.
pub(crate) fn select_dequantize(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    use DataType::{Bfloat16, Float, Float8e8m0, Float16, Int32};
    let (x, scale) =
        (site.elem(X)?, demand_type(site, SCALE, &[Float, Float16, Bfloat16, Float8e8m0])?);
    if !is_integer(x) && !is_small_float(x) && x != Int32 {
        return site.unsupported_type(x);
    }
    let to = output_type(site)?.unwrap_or(scale);
    if !matches!(to, Float | Float16 | Bfloat16) {
        return site.unsupported_type(to);
    }
    Ok(Box::new(Dequantize { types: [x, scale, to], layout: Layout::new(site)? }))
}

struct Dequantize {
    /// Types of the input, the scales and the result.
    types: [DataType; 3],
    layout: Layout,
}

/// Elements to dequantize.
enum Source<'a> {
    Int8(&'a [i8]),
    Uint8(&'a [u8]),
    Int16(&'a [i16]),
    Uint16(&'a [u16]),
    Int32(&'a [i32]),
    /// Integers smaller than a byte.
    Shared {
        bytes: Contents<'a, u8>,
        bits: usize,
        signed: bool,
    },
    /// Small floats, widened.
    Floats(Contents<'a, f32>),
}

impl<'a> Source<'a> {
    fn new(call: &Call<'a>, elem: DataType) -> Result<Source<'a>, KernelError> {
        if let Some((bits, signed)) = sub_byte_form(elem) {
            return Ok(Source::Shared { bytes: dense(call, call.tensor(X)?)?, bits, signed });
        }
        Ok(match elem {
            DataType::Int8 => Source::Int8(call.slice(X)?),
            DataType::Uint8 => Source::Uint8(call.slice(X)?),
            DataType::Int16 => Source::Int16(call.slice(X)?),
            DataType::Uint16 => Source::Uint16(call.slice(X)?),
            DataType::Int32 => Source::Int32(call.slice(X)?),
            _ => Source::Floats(numbers(call, X)?),
        })
    }

    fn dequantize(
        &self,
        exec: &Exec<'_>,
        scaling: &Scaling<'_>,
        y: &mut [f32],
    ) -> Result<(), Ended> {
        match self {
            Source::Int8(x) => i8::dequantize(exec, scaling, x, y),
            Source::Uint8(x) => u8::dequantize(exec, scaling, x, y),
            Source::Int16(x) => i16::dequantize(exec, scaling, x, y),
            Source::Uint16(x) => u16::dequantize(exec, scaling, x, y),
            Source::Int32(x) => i32::dequantize(exec, scaling, x, y),
            Source::Shared { bytes, bits, signed } => {
                let codes = Codes { bytes, bits: *bits, signed: *signed };
                dequantize_packed(exec, scaling, codes, y)
            }
            Source::Floats(x) => f32::dequantize(exec, scaling, x, y),
        }
    }
}

impl Kernel for Dequantize {
    fn describe(&self) -> String {
        let [x, _, to] = self.types;
        format!("{} to {}", x.name(), to.name())
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let [elem, scale, to] = self.types;
        demand_elem(call.tensor(X)?, X, elem)?;
        demand_elem(call.tensor(SCALE)?, SCALE, scale)?;
        let dims: Dims = call.tensor(X)?.dims().into();
        if dims.contains(&0) {
            return call.output(0, to, &dims).map(|_| ());
        }
        let spread = self.layout.spread(call)?;
        let (zeros, scales) = (zeros(call, elem)?, numbers(call, SCALE)?);
        let zeros = zeros.as_deref().unwrap_or_default();
        let scaling = Scaling { spread, scales: &scales, zeros };
        let (source, exec) = (Source::new(call, elem)?, call.exec);
        if to == DataType::Float {
            source.dequantize(exec, &scaling, call.output_slice(0, &dims)?)?;
            return Ok(());
        }
        let mut wide = call.scratch::<f32>(call.tensor(X)?.len())?;
        source.dequantize(exec, &scaling, &mut wide)?;
        let conversion = Conversion { from: DataType::Float, to, options: CastOptions::default() };
        let mut output = call.output(0, to, &dims)?;
        let source = bytemuck::cast_slice(&wide);
        conversion.convert(exec.pool, source, output.bytes_mut(), wide.len())
    }
}

/// Binds `DynamicQuantizeLinear`.
pub(crate) fn bind_dynamic(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    demand_type(site, X, &[DataType::Float])?;
    Ok(Box::new(DynamicQuantize))
}

/// DynamicQuantizeLinear as one step, with two passes over the elements where its function has
/// three.
struct DynamicQuantize;

impl Kernel for DynamicQuantize {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (x, exec) = (call.slice::<f32>(X)?, call.exec);
        let [low, high] = limits(exec, x)?;
        let scale = (high - low) / 255.0;
        // NaN, which results if all elements are zero, becomes 0.
        let zero = (0.0 - low / scale).clamp(0.0, 255.0).round_ties_even() as u8;
        let scaling = Scaling { spread: Spread::One, scales: &[scale], zeros: &[f32::from(zero)] };
        u8::quantize(exec, &scaling, x, call.output_like()?)?;
        if call.has_output(1) {
            call.output_slice(1, &[])?.fill(scale);
        }
        if call.has_output(2) {
            call.output_slice(2, &[])?.fill(zero);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use sardonyx_ops::AttrValue::{self, Int};
    use sardonyx_tensor::{Tensor, cast};

    use super::*;
    use crate::ops::testing::{run, tensor};
    use DataType::{
        Bfloat16, Double, Float, Float4e2m1, Float6e3m2, Float8e4m3fn, Float8e5m2, Float8e8m0,
        Float16, Int2, Int4, Int8, Int16, Int32, Uint2, Uint4, Uint8, Uint16,
    };

    const INF: f32 = f32::INFINITY;

    /// Makes a tensor of a type.
    fn make_tensor(elem: DataType, dims: &[usize], numbers: &[f32]) -> Tensor {
        cast(&tensor(dims, numbers), elem, CastOptions::default()).expect("numbers of the type")
    }

    fn bits(tensor: &Tensor) -> Vec<u32> {
        let floats = cast(tensor, Float, CastOptions::default()).expect("numbers");
        floats.to_vec::<f32>().expect("floats").iter().map(|x| x.to_bits()).collect()
    }

    fn check(
        op: &str,
        attributes: &[(&str, AttrValue<'static>)],
        inputs: &[Option<&Tensor>],
        to: DataType,
        want: &[f32],
    ) {
        let found = run(op, attributes, inputs, 1).expect("it runs");
        let what = format!("{op} {attributes:?} {inputs:?}");
        assert_eq!(found[0].data_type(), to, "{what}");
        assert_eq!(found[0].dims(), inputs[0].expect("an input").dims(), "{what}");
        let want: Vec<u32> = want.iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits(&found[0]), want, "{what}: {:?}", found[0]);
    }

    /// Checks ties, numbers out of range, infinities and NaN, without and with a zero point. The
    /// count leaves the last byte of small types partly unused.
    #[test]
    fn rounded_and_limited() {
        let x = [-INF, -3.0, -2.5, -0.5, -0.0, 0.5, 1.5, 2.5, 300.7, INF, f32::NAN];
        let x = tensor(&[11], &x);
        let one = tensor(&[], &[1.0f32]);
        for (to, zero, want) in [
            (Int8, 0.0, [-128.0, -3.0, -2.0, 0.0, 0.0, 0.0, 2.0, 2.0, 127.0, 127.0, -128.0]),
            // The quotient is rounded, not the sum.
            (Int8, 1.0, [-128.0, -2.0, -1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 127.0, 127.0, -128.0]),
            (
                Uint8,
                255.0,
                [0.0, 252.0, 253.0, 255.0, 255.0, 255.0, 255.0, 255.0, 255.0, 255.0, 0.0],
            ),
            (
                Int16,
                -32768.0,
                [
                    -32768.0, -32768.0, -32768.0, -32768.0, -32768.0, -32768.0, -32766.0, -32766.0,
                    -32467.0, 32767.0, -32768.0,
                ],
            ),
            (Uint16, 3.0, [0.0, 0.0, 1.0, 3.0, 3.0, 3.0, 5.0, 5.0, 304.0, 65535.0, 0.0]),
            (Int4, 7.0, [-8.0, 4.0, 5.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, 7.0, -8.0]),
            (Uint4, 0.0, [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 15.0, 15.0, 0.0]),
            (Int2, -2.0, [-2.0, -2.0, -2.0, -2.0, -2.0, -2.0, 0.0, 0.0, 1.0, 1.0, -2.0]),
            (Uint2, 1.0, [0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0, 3.0, 0.0]),
        ] {
            let zero_point = make_tensor(to, &[], &[zero]);
            check("QuantizeLinear", &[], &[Some(&x), Some(&one), Some(&zero_point)], to, &want);
            if zero == 0.0 {
                let given = [("output_dtype", Int(to.number().into()))];
                check("QuantizeLinear", &given, &[Some(&x), Some(&one)], to, &want);
            }
        }
    }

    #[test]
    fn small_floats() {
        let x = tensor(&[9], &[0.3, -0.0, 0.0625, 500.0, INF, -1e9, 6.0, 2.5, 5.0f32]);
        let one = tensor(&[], &[1.0f32]);
        for (to, saturate, zero, want) in [
            (Float8e4m3fn, 1, None, [0.3125, -0.0, 0.0625, 448.0, 448.0, -448.0, 6.0, 2.5, 5.0]),
            // A zero point of zero does not take the sign of zeros.
            (
                Float8e4m3fn,
                1,
                Some(0.0),
                [0.3125, -0.0, 0.0625, 448.0, 448.0, -448.0, 6.0, 2.5, 5.0],
            ),
            (Float8e4m3fn, 1, Some(1.0), [1.25, 1.0, 1.0, 448.0, 448.0, -448.0, 7.0, 3.5, 6.0]),
            (Float8e5m2, 0, None, [0.3125, -0.0, 0.0625, 512.0, INF, -INF, 6.0, 2.5, 5.0]),
            (Float4e2m1, 0, None, [0.5, -0.0, 0.0, 6.0, 6.0, -6.0, 6.0, 2.0, 4.0]),
            (Float4e2m1, 1, Some(0.5), [1.0, 0.5, 0.5, 6.0, 6.0, -6.0, 6.0, 3.0, 6.0]),
            (Float6e3m2, 1, None, [0.3125, -0.0, 0.0625, 28.0, 28.0, -28.0, 6.0, 2.5, 5.0]),
        ] {
            let zero = zero.map(|zero| make_tensor(to, &[], &[zero]));
            let given = [("output_dtype", Int(to.number().into())), ("saturate", Int(saturate))];
            check("QuantizeLinear", &given, &[Some(&x), Some(&one), zero.as_ref()], to, &want);
        }
    }

    /// Checks that the scale's type, or the attribute, decides the precision of quotients.
    #[test]
    fn precisions() {
        // 2049 / 2 is 1024.5, which a half of eleven bits has not.
        let precision = |elem: DataType| vec![("precision", Int(elem.number().into()))];
        let int16 = tensor(&[], &[0i16]);
        for (x, scale, attributes, want) in [
            ((Float, 2051.0), (Float, 2.0), vec![], 1026.0),
            ((Float, 2051.0), (Float, 2.0), precision(Float16), 1026.0),
            ((Float, 2049.0), (Float, 2.0), precision(Float16), 1024.0),
            ((Float, 2050.0), (Float, 2.0), precision(Bfloat16), 1024.0),
            ((Float, 2054.0), (Float, 2.0), vec![], 1027.0),
            ((Float, 2054.0), (Float16, 2.0), vec![], 1027.0),
            ((Float, 2054.0), (Bfloat16, 2.0), vec![], 1024.0),
            ((Float16, 2054.0), (Float8e8m0, 2.0), vec![], 1027.0),
            ((Bfloat16, 2054.0), (Float, 2.0), vec![], 1024.0),
            ((Int32, 2053.0), (Int32, 2.0), vec![], 1026.0),
            ((Int32, 2055.0), (Int32, 2.0), vec![], 1028.0),
            ((Int32, 65_537.0), (Float8e8m0, 4.0), vec![], 16_384.0),
            ((Float, 1e5), (Float, 10.0), precision(Float16), 32_767.0),
            ((Float, 1e5), (Float, 10.0), precision(Double), 10_000.0),
        ] {
            let (x, scale) =
                (make_tensor(x.0, &[1], &[x.1]), make_tensor(scale.0, &[], &[scale.1]));
            let inputs = [Some(&x), Some(&scale), Some(&int16)];
            check("QuantizeLinear", &attributes, &inputs, Int16, &[want]);
        }
    }

    #[test]
    fn slices_and_blocks() {
        let x: Vec<f32> = (0..15).map(|i| i as f32).collect();
        let numbers: Vec<f32> = (1..=15).map(|i| i as f32).collect();
        let x = tensor(&[3, 5], &x);
        // Dimensions of the scales, and which of them an element has.
        type Which = fn(usize, usize) -> usize;
        let rows: [(&[usize], i64, i64, Which); 7] = [
            (&[1], 7, 0, |_, _| 0),
            (&[5], 1, 0, |_, j| j),
            (&[3], -2, 0, |i, _| i),
            (&[3, 3], 1, 2, |i, j| i * 3 + j / 2),
            (&[3, 1], -1, 5, |i, _| i),
            (&[2, 5], 0, 2, |i, j| i / 2 * 5 + j),
            (&[], 9, 4, |_, _| 0),
        ];
        for (dims, axis, block, which) in rows {
            let count = dims.iter().product::<usize>();
            let attributes = [("axis", Int(axis)), ("block_size", Int(block))];
            let scales = tensor(dims, &numbers[..count]);
            for elem in [Int8, Uint4, Uint2] {
                let most = if elem == Uint2 { 3.0 } else { 15.0f32 };
                let zeros: Vec<f32> = (0..count).map(|i| (i % 4) as f32).collect();
                let zeros_given = make_tensor(elem, dims, &zeros);
                let elements = || (0..15).map(|at| (at as f32, which(at / 5, at % 5)));
                let codes = elements().map(|(x, place)| {
                    let quotient = (f64::from(x) / f64::from(numbers[place])).round_ties_even();
                    (quotient as f32 + zeros[place]).min(if elem == Int8 { 127.0 } else { most })
                });
                let codes: Vec<f32> = codes.collect();
                let inputs = [Some(&x), Some(&scales), Some(&zeros_given)];
                check("QuantizeLinear", &attributes, &inputs, elem, &codes);
                let given = make_tensor(elem, &[3, 5], &codes);
                let back = elements()
                    .map(|(x, place)| (codes[x as usize] - zeros[place]) * numbers[place]);
                let back: Vec<f32> = back.collect();
                let inputs = [Some(&given), Some(&scales), Some(&zeros_given)];
                check("DequantizeLinear", &attributes, &inputs, Float, &back);
            }
        }
    }

    #[test]
    fn dequantized_types() {
        let to = |elem: DataType| vec![("output_dtype", Int(elem.number().into()))];
        for (x, zero, scale, attributes, want) in [
            (
                (Int8, [-128.0, 127.0, 0.0]),
                Some(-1.0),
                (Float, 0.5),
                vec![],
                (Float, [-63.5, 64.0, 0.5]),
            ),
            (
                (Uint16, [65_535.0, 0.0, 1.0]),
                Some(1.0),
                (Float, 2.0),
                vec![],
                (Float, [131_068.0, -2.0, 0.0]),
            ),
            ((Int4, [-8.0, 7.0, 3.0]), None, (Float16, 0.5), vec![], (Float16, [-4.0, 3.5, 1.5])),
            (
                (Uint2, [0.0, 3.0, 2.0]),
                Some(2.0),
                (Bfloat16, 3.0),
                vec![],
                (Bfloat16, [-6.0, 3.0, 0.0]),
            ),
            (
                (Int32, [-16_777_216.0, 16_777_216.0, 5.0]),
                None,
                (Float, 2.0),
                vec![],
                (Float, [-33_554_432.0, 33_554_432.0, 10.0]),
            ),
            (
                (Float8e4m3fn, [-0.0, 448.0, 0.3125]),
                Some(0.0),
                (Float, 2.0),
                vec![],
                (Float, [-0.0, 896.0, 0.625]),
            ),
            (
                (Float4e2m1, [-6.0, 0.5, 1.0]),
                Some(0.5),
                (Float, 2.0),
                vec![],
                (Float, [-13.0, 0.0, 1.0]),
            ),
            (
                (Float6e3m2, [-28.0, 0.0625, 1.0]),
                None,
                (Float8e8m0, 4.0),
                to(Float16),
                (Float16, [-112.0, 0.25, 4.0]),
            ),
            // The product is rounded to the type of the result: 8 bits.
            (
                (Int16, [257.0, 1.0, 0.0]),
                None,
                (Float, 1.0),
                to(Bfloat16),
                (Bfloat16, [256.0, 1.0, 0.0]),
            ),
            (
                (Int16, [257.0, 1.0, 0.0]),
                None,
                (Float16, 1.0),
                to(Float),
                (Float, [257.0, 1.0, 0.0]),
            ),
        ] {
            let zero = zero.map(|zero| make_tensor(x.0, &[], &[zero]));
            let (x, scale) = (make_tensor(x.0, &[3], &x.1), make_tensor(scale.0, &[], &[scale.1]));
            let inputs = [Some(&x), Some(&scale), zero.as_ref()];
            check("DequantizeLinear", &attributes, &inputs, want.0, &want.1);
        }
    }

    /// Checks the formulas of the function, computed by hand.
    #[test]
    fn scales_from_the_elements() {
        for (x, scale, zero, want) in [
            (
                &[0.0, 2.0, -3.0, -2.5, 1.34, 0.5][..],
                5.0 / 255.0,
                153,
                &[153, 255, 0, 26, 221, 179][..],
            ),
            (&[-1.0, -2.1, -1.3, -2.5, -3.34, -4.0], 4.0 / 255.0, 255, &[191, 121, 172, 96, 42, 0]),
            (&[1.0, 2.1, 4.0], 4.0 / 255.0, 0, &[64, 134, 255]),
            (&[0.0, -0.0], 0.0, 0, &[0, 0]),
            (&[1.0, f32::NAN, 2.0], f32::NAN, 0, &[0, 0, 0]),
            (&[1.0, INF, -2.0], INF, 0, &[0, 0, 0]),
            (&[], 0.0, 0, &[]),
        ] {
            let given = tensor(&[x.len()], x);
            let found = run("DynamicQuantizeLinear", &[], &[Some(&given)], 3).unwrap();
            assert_eq!(found[0].to_vec::<u8>().unwrap(), want, "{x:?}");
            assert_eq!(bits(&found[1]), [scale.to_bits()], "{x:?}");
            assert_eq!(found[2].to_vec::<u8>().unwrap(), [zero], "{x:?}");
            assert!(found[1].dims().is_empty() && found[2].dims().is_empty());
        }
    }

    #[test]
    fn tensors_without_elements() {
        let blocks = [("axis", Int(1)), ("block_size", Int(2))];
        for dims in [&[0usize, 3][..], &[2, 0], &[0]] {
            let (x, scale) = (tensor::<f32>(dims, &[]), tensor(&[], &[1.0f32]));
            for elem in [Uint8, Uint4, Float8e5m2] {
                let zero = make_tensor(elem, &[], &[0.0]);
                check("QuantizeLinear", &blocks, &[Some(&x), Some(&scale), Some(&zero)], elem, &[]);
                let x = make_tensor(elem, dims, &[]);
                check(
                    "DequantizeLinear",
                    &blocks,
                    &[Some(&x), Some(&scale), Some(&zero)],
                    Float,
                    &[],
                );
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let x = tensor(&[2, 3], &[1.0f32; 6]);
        let codes = tensor(&[2, 3], &[1u8; 6]);
        let ones = |dims: &[usize]| tensor(dims, &vec![1.0f32; dims.iter().product()]);
        let zeros = |dims: &[usize]| tensor(dims, &vec![0u8; dims.iter().product()]);
        let block = |size: i64| vec![("block_size", Int(size))];
        let axis = |axis: i64| vec![("axis", Int(axis))];
        for (attributes, scale, zero, why) in [
            (vec![], ones(&[2]), None, "2 scales for 3 slices of axis 1"),
            (axis(2), ones(&[2]), None, "axis 2 is out of range for rank 2"),
            (
                axis(i64::MIN),
                ones(&[2]),
                None,
                "axis -9223372036854775808 is out of range for rank 2",
            ),
            (
                vec![],
                ones(&[2, 3]),
                None,
                "scales have shape [2, 3], but without block_size there must be one scale, or one for each slice of \
                 an axis",
            ),
            (
                vec![],
                ones(&[3]),
                Some(zeros(&[2])),
                "zero points have shape [2], but scales have shape [3]",
            ),
            (
                vec![],
                ones(&[]),
                Some(zeros(&[3])),
                "zero points have shape [3], but scales have shape []",
            ),
            (block(-1), ones(&[]), None, "block_size must not be negative, not -1"),
            (
                block(2),
                ones(&[2]),
                None,
                "scales have shape [2], but scales of blocks must have the rank of the input, 2",
            ),
            (
                block(2),
                ones(&[2, 3]),
                None,
                "scales have shape [2, 3], but blocks of 2 along axis 1 of [2, 3] require 2 on axis 1",
            ),
            (
                block(i64::MAX),
                ones(&[2, 2]),
                None,
                "scales have shape [2, 2], but blocks of 9223372036854775807 along axis 1 of [2, 3] require 1 on axis \
                 1",
            ),
        ] {
            for (op, x) in [("QuantizeLinear", &x), ("DequantizeLinear", &codes)] {
                let error = run(op, &attributes, &[Some(x), Some(&scale), zero.as_ref()], 1);
                assert_eq!(error.unwrap_err(), why, "{op}");
            }
        }
    }

    #[test]
    fn types_that_are_not_there_are_refused() {
        let (x, scale) = (tensor(&[1], &[1.0f32]), tensor(&[], &[1.0f32]));
        let output = |number: i64| vec![("output_dtype", Int(number))];
        let power = make_tensor(Float8e8m0, &[], &[2.0]);
        for (op, attributes, inputs, why) in [
            (
                "QuantizeLinear",
                output(99),
                [&x, &scale, &tensor(&[], &[0u8])],
                "attribute 'output_dtype' is 99, which is not an element type",
            ),
            (
                "QuantizeLinear",
                output(3),
                [&x, &scale, &tensor(&[], &[0u8])],
                "output_dtype is int8, but the zero point is uint8",
            ),
            (
                "QuantizeLinear",
                vec![],
                [&x, &scale, &tensor(&[], &[0i32])],
                "type not implemented: int32",
            ),
            (
                "QuantizeLinear",
                vec![("precision", Int(3))],
                [&x, &scale, &tensor(&[], &[0u8])],
                "attribute 'precision' is 3 (int8), which is not a floating-point type",
            ),
            (
                "DequantizeLinear",
                vec![],
                [&tensor(&[1], &[1u8]), &power, &tensor(&[], &[0u8])],
                "type not implemented: float8e8m0",
            ),
            (
                "DequantizeLinear",
                output(3),
                [&tensor(&[1], &[1u8]), &scale, &tensor(&[], &[0u8])],
                "type not implemented: int8",
            ),
            (
                "DequantizeLinear",
                vec![],
                [&tensor(&[1], &[1u8]), &scale, &tensor(&[], &[0i8])],
                "the zero point, input 2, is int8, not uint8",
            ),
        ] {
            let error = run(op, &attributes, &inputs.map(Some), 1);
            assert_eq!(error.unwrap_err(), why, "{op}");
        }
    }
}
