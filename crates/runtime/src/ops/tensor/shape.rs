//! Shape: returns the dimensions of a tensor, or some of them, as a vector.

use smallvec::SmallVec;

use crate::error::{BindError, KernelError};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};

struct Shape {
    start: i64,
    end: Option<i64>,
}

/// Binds `Shape`.
pub(crate) fn bind(site: &Site<'_>) -> Result<Box<dyn Kernel>, BindError> {
    Ok(Box::new(Shape { start: site.int("start").unwrap_or(0), end: site.int("end") }))
}

impl Kernel for Shape {
    fn memory(&self) -> MemoryRules {
        MemoryRules { strided: Inputs::ALL, ..MemoryRules::default() }
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let dims = call.tensor(0)?.dims();
        let rank = dims.len() as i64;
        let bound = |axis: i64| {
            let axis = if axis < 0 { axis.saturating_add(rank) } else { axis };
            axis.clamp(0, rank) as usize
        };
        let start = bound(self.start);
        let end = bound(self.end.unwrap_or(rank)).max(start);
        let sizes: SmallVec<[i64; 8]> = dims[start..end].iter().map(|size| *size as i64).collect();
        call.output_slice(0, &[sizes.len()])?.copy_from_slice(&sizes);
        Ok(())
    }
}
