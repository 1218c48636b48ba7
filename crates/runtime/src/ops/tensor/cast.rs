//! Cast: converts elements to another type.

use std::sync::{Mutex, PoisonError};

use sardonyx_kernels::{Operation, Pool, Work};
use sardonyx_tensor::{CastOptions, DataType, RoundMode, TensorView, Value, cast, cast_slices};

use super::moves::dense;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program::{self, Conversion, MoveKind, Op};

/// Lowers `Cast`; to the same type it is the identity.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let conversion = conversion(site)?;
    let Conversion { from, to, .. } = conversion;
    // The standard excludes complex numbers.
    if let Some(complex) = [from, to].into_iter().find(|elem| elem.is_complex()) {
        return site.unsupported_type(complex);
    }
    if from == to {
        return Ok(Op::moves(MoveKind::SAME, site));
    }
    if [from, to].contains(&DataType::String) {
        return Ok(Op::opaque(site));
    }
    Ok(Op::Cast(Box::new(program::Cast { x: site.slot(0)?, conversion })))
}

/// Binds `Cast` from or to strings.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(CastStrings(conversion(site)?)))
}

fn conversion(site: &Site<'_>) -> Result<Conversion, BindError> {
    let from = site.elem(0)?;
    let number = site.need_int("to")?;
    let Some(to) = i32::try_from(number).ok().and_then(DataType::from_number) else {
        return Err(BindError::Invalid(format!("to = {number} is not an element type")));
    };
    let word = site.string("round_mode").unwrap_or_default();
    let round_mode = match RoundMode::from_name(&word) {
        Some(mode) => mode,
        // Only conversions to the power-of-two scale use the mode.
        None if to != DataType::Float8e8m0 => RoundMode::default(),
        None => {
            return Err(BindError::Invalid(format!(
                "round_mode = \"{word}\" is not a rounding mode"
            )));
        }
    };
    let saturate = site.int("saturate") != Some(0);
    Ok(Conversion { from, to, options: CastOptions { saturate, round_mode } })
}

/// Conversion between types other than strings.
pub(crate) struct Cast(pub(crate) Conversion);

/// Conversion from or to strings.
struct CastStrings(Conversion);

impl Kernel for Cast {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let input = self.0.input(call)?;
        let pool = call.exec.pool;
        let source = dense(call, &input)?;
        let mut output = call.output(0, self.0.to, input.dims())?;
        self.0.convert(pool, &source, output.bytes_mut(), input.len())
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

impl Kernel for CastStrings {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let Conversion { to, options, .. } = self.0;
        let converted = cast(&self.0.input(call)?.to_tensor()?, to, options)?;
        call.set_output(0, Value::Tensor(converted))
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

impl Conversion {
    fn input<'a>(&self, call: &Call<'a>) -> Result<TensorView<'a>, KernelError> {
        let input = call.tensor(0)?.clone();
        if input.data_type() != self.from {
            fail!("the input is {}, but {} was inferred", input.data_type(), self.from);
        }
        Ok(input)
    }

    fn describe(&self) -> String {
        format!("{} to {}", self.from.name(), self.to.name())
    }

    /// Converts elements, large tensors on all threads.
    pub(in crate::ops) fn convert(
        &self,
        pool: &Pool,
        source: &[u8],
        target: &mut [u8],
        elems: usize,
    ) -> Result<(), KernelError> {
        // A multiple of 8 elements fills whole bytes in every type.
        let parts = Work::new(Operation::Element, elems).cut(pool);
        let count = elems.div_ceil(parts.count).next_multiple_of(8);
        let sizes = self.from.storage_bytes(count).zip(self.to.storage_bytes(count));
        let Some((source_bytes, target_bytes)) = sizes.filter(|_| count < elems) else {
            return Ok(cast_slices(self.from, source, self.to, target, elems, self.options)?);
        };
        let chunks = source.chunks(source_bytes).zip(target.chunks_mut(target_bytes)).enumerate();
        let (chunks, result) = (Mutex::new(chunks), Mutex::new(Ok(())));
        pool.run_on(parts.threads, elems.div_ceil(count), |_| {
            let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((index, (source, target))) = next else { return };
            let elems = count.min(elems - index * count);
            let done = cast_slices(self.from, source, self.to, target, elems, self.options);
            if done.is_err() {
                *result.lock().unwrap_or_else(PoisonError::into_inner) = done;
            }
        })?;
        Ok(result.into_inner().unwrap_or_else(PoisonError::into_inner)?)
    }
}
