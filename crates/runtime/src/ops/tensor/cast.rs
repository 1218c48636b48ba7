//! Cast: elements converted to another type.

use std::sync::{Mutex, PoisonError};

use sardonyx_kernels::Pool;
use sardonyx_tensor::{CastOptions, DataType, RoundMode, TensorError, Value, cast, cast_slices};

use super::moves::dense;
use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Kernel, Site};
use crate::program::{MoveKind, Op};

struct Cast {
    from: DataType,
    to: DataType,
    options: CastOptions,
}

/// `Cast`: to the same type nothing happens.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let from = site.elem(0)?;
    let is_same = site.int("to") == Some(i64::from(from.number()));
    Ok(if is_same && !from.is_complex() {
        Op::moves(MoveKind::SAME, site)
    } else {
        Op::opaque(site)
    })
}

/// `Cast` to another type.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    let from = site.elem(0)?;
    let number = site.need_int("to")?;
    let Some(to) = i32::try_from(number).ok().and_then(DataType::from_number) else {
        return Err(BindError::Invalid(format!("to = {number} is no element type")));
    };
    // The standard leaves complex numbers out.
    if let Some(complex) = [from, to].into_iter().find(|elem| elem.is_complex()) {
        return site.unsupported_type(complex);
    }
    let word = site.string("round_mode").unwrap_or_default();
    let round_mode = match RoundMode::from_name(&word) {
        Some(mode) => mode,
        // Only the power-of-two scale is rounded by it; elsewhere the word does not matter.
        None if to != DataType::Float8e8m0 => RoundMode::default(),
        None => {
            return Err(BindError::Invalid(format!("round_mode = \"{word}\" is no rounding")));
        }
    };
    let saturate = site.int("saturate") != Some(0);
    Ok(Box::new(Cast { from, to, options: CastOptions { saturate, round_mode } }))
}

impl Kernel for Cast {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let input = call.tensor(0)?.clone();
        if input.data_type() != self.from {
            fail!(
                "the input is {}, but {} was inferred",
                input.data_type().name(),
                self.from.name()
            );
        }
        if [self.from, self.to].contains(&DataType::String) {
            let converted = cast(&input.to_tensor()?, self.to, self.options)?;
            return call.set_output(0, Value::Tensor(converted));
        }
        let pool = call.exec.pool;
        let source = dense(call, &input)?;
        let mut output = call.output(0, self.to, input.dims())?;
        Ok(self.convert(pool, &source, output.bytes_mut(), input.len())?)
    }

    fn describe(&self) -> String {
        format!("{} to {}", self.from.name(), self.to.name())
    }
}

/// Fewer elements are not worth waking a thread for.
const MIN_CHUNK: usize = 16 * 1024;

impl Cast {
    fn convert(
        &self,
        pool: &Pool,
        source: &[u8],
        target: &mut [u8],
        elems: usize,
    ) -> Result<(), TensorError> {
        let whole = |target: &mut [u8]| {
            cast_slices(self.from, source, self.to, target, elems, self.options)
        };
        // A multiple of 8 elements fills whole bytes in every type.
        let count = elems.div_ceil(4 * pool.threads()).max(MIN_CHUNK).next_multiple_of(8);
        let sizes = self.from.storage_bytes(count).zip(self.to.storage_bytes(count));
        let Some((source_bytes, target_bytes)) = sizes.filter(|_| count < elems) else {
            return whole(target);
        };
        let chunks: Vec<_> = source
            .chunks(source_bytes)
            .zip(target.chunks_mut(target_bytes).map(Mutex::new))
            .collect();
        let result = Mutex::new(Ok(()));
        pool.run(chunks.len(), |index| {
            let (source, target) = &chunks[index];
            // Every chunk has one thread; the lock only says so.
            let mut target = target.lock().unwrap_or_else(PoisonError::into_inner);
            let elems = count.min(elems - index * count);
            let done = cast_slices(self.from, source, self.to, &mut target, elems, self.options);
            if done.is_err() {
                *result.lock().unwrap_or_else(PoisonError::into_inner) = done;
            }
        });
        result.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}
