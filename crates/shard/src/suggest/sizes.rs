//! Sizes that are assumed for open ones, as splits need numbers.

use sardonyx_model::{Dim, Model, Type};
use sardonyx_ops::Registry;

use crate::options::{ShardError, ShardOptions};
use crate::prepare::{Prepared, newest_forms, prepare};

/// Sizes to try for all open sizes, in this order, until the model accepts one: a model may limit
/// the number of positions, or need an image of a minimum size.
const ASSUMED_SIZES: [i64; 4] = [64, 224, 16, 1];

/// Prepares the model with numbers for all sizes, which splitting needs.
pub(super) fn prepare_with_sizes(
    annotated: &Model,
    registry: &Registry,
    name: &str,
    options: ShardOptions<'_>,
) -> Result<Prepared, ShardError> {
    let mut refused = None;
    for size in ASSUMED_SIZES {
        let inputs = with_assumed_sizes(annotated, options, size);
        let options = ShardOptions { configuration: Some(name), inputs: &inputs, ..options };
        match prepare(newest_forms(annotated.clone(), registry), registry, options) {
            Ok(prepared) => return Ok(prepared),
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    Err(refused.expect("sizes were tried"))
}

/// Returns the types of inputs with a number for each size.
fn with_assumed_sizes(model: &Model, options: ShardOptions<'_>, assumed: i64) -> Vec<Option<Type>> {
    let Some(main) = model.main_graph() else { return Vec::new() };
    let given = options.inputs.iter().chain(std::iter::repeat(&None));
    let types = main.inputs.iter().zip(given).map(|(info, given)| {
        let declared = || info.ty.as_ref().and_then(|ty| model.type_of(ty));
        let ty = given.clone().or_else(declared)?;
        let number = |name: &str| {
            let known = options.symbols.iter().find(|(known, _)| known == name);
            Some(Dim::Known(known.map_or(assumed, |(_, size)| *size)))
        };
        let mut ty = ty.substitute(&number);
        ty.for_each_dim(&mut |dim| {
            if dim.is_unknown() {
                *dim = Dim::Known(assumed);
            }
        });
        Some(ty)
    });
    types.collect()
}
