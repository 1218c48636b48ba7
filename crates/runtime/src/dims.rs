//! Symbolic sizes that the options fix for all runs.

use std::collections::BTreeSet;

use sardonyx_model::{Dim, Model, Type};

use crate::error::CompileError;

/// Limit: names that a message lists.
const SHOWN: usize = 20;

/// Refuses names that no input has, negative sizes, and two sizes for one name.
///
/// # Errors
///
/// [`CompileError::Option`] with the cause.
pub fn check(model: &Model, dims: &[(String, i64)]) -> Result<(), CompileError> {
    if dims.is_empty() {
        return Ok(());
    }
    let graphs = model.main.iter().map(|main| model.graph(*main));
    let inputs = graphs.flat_map(|graph| &graph.inputs);
    let types = inputs.filter_map(|info| model.type_of(info.ty.as_ref()?));
    let mut names = BTreeSet::new();
    for mut ty in types {
        ty.for_each_dim(&mut |dim| names.extend(dim.symbols()));
    }
    for (index, (name, size)) in dims.iter().enumerate() {
        if !names.contains(name) {
            let there_are = match names.len() {
                0 => "all of them are numbers or unknown".to_string(),
                _ => format!("sizes are: {}", list_names(&names)),
            };
            let near = sardonyx_proto::suggest::hint(name, names.iter().map(String::as_str));
            return Err(CompileError::Option(format!(
                "the inputs have no dimension '{name}'; {there_are}{near}"
            )));
        }
        if *size < 0 {
            return Err(CompileError::Option(format!("the dimension '{name}' cannot be {size}")));
        }
        let before = dims[..index].iter().find(|(before, _)| before == name);
        if let Some((_, before)) = before.filter(|(_, before)| before != size) {
            return Err(CompileError::Option(format!(
                "the dimension '{name}' is set to both {before} and {size}"
            )));
        }
    }
    Ok(())
}

fn list_names(names: &BTreeSet<String>) -> String {
    let shown: Vec<&str> = names.iter().map(String::as_str).take(SHOWN).collect();
    let more = if names.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

/// Replaces names in a type by their fixed sizes.
pub(crate) fn fix_sizes(ty: Type, dims: &[(String, i64)]) -> Type {
    if dims.is_empty() {
        return ty;
    }
    let size = |name: &str| {
        let found = dims.iter().find(|(fixed, _)| fixed == name);
        found.map(|(_, size)| Dim::Known(*size))
    };
    ty.substitute(&size)
}

/// Writes fixed sizes for a message: `N = 1, M = 4`.
pub(crate) fn format_sizes(dims: &[(String, i64)]) -> String {
    let shown: Vec<String> =
        dims.iter().take(SHOWN).map(|(name, size)| format!("{name} = {size}")).collect();
    let more = if dims.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}
