//! Preparation of a model for planning: calls inlined, newest forms of operators, types inferred.

use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{Model, NodeId};
use sardonyx_ops::Registry;
use sardonyx_passes::{
    ConvertOptions, DeriveError, Finding, InferOptions, Inference, Origins, Resolved, Target,
    configurations, convert_in_any_order, expand_to_split, flatten, infer, resolve,
    unpack_sequences,
};

use crate::options::{OutputsAt, ShardError, ShardOptions};
use crate::resident::Resident;
use crate::sizes::{Scope, symbols_of_inputs};

/// Prepares a model for plans with any sizes of its inputs: inlines calls of functions, expands
/// `Gradient` nodes, and brings nodes to the newest versions of their operators, as far as
/// possible.
///
/// # Errors
///
/// `Gradient` nodes that cannot be derived.
pub fn prepare_to_shard(model: &Model, registry: &Registry) -> Result<Model, ShardError> {
    let (inlined, _) = inlined(model, registry)?;
    Ok(newest_forms(inlined, registry))
}

/// Resolved and typed model from which plans are made, with the options that they share.
pub(crate) struct Prepared {
    pub(crate) resolved: Resolved,
    pub(crate) types: Inference,
    pub(crate) symbols: HashMap<String, usize>,
    /// Symbols of inputs without a size.
    pub(crate) open: HashSet<String>,
    pub(crate) scope: Option<Arc<Scope>>,
    pub(crate) configuration: String,
    pub(crate) devices: usize,
    /// Sizes of symbols on which the plan depends, ordered by name.
    pub(crate) sizes: Vec<(String, i64)>,
    pub(crate) outputs: OutputsAt,
    pub(crate) residents: Vec<Resident>,
    pub(crate) unreturned: Vec<usize>,
    pub(crate) whole_bodies: bool,
}

impl Prepared {
    /// Expands those of `nodes` that can be computed in parts only as several nodes. `None` if none
    /// of them is expanded.
    pub(crate) fn with_split_nodes(
        self,
        nodes: &HashSet<NodeId>,
        options: ShardOptions<'_>,
    ) -> Option<Prepared> {
        let Prepared { mut resolved, types, .. } = self;
        let are_some = expand_to_split(&mut resolved, &types, nodes).ok()?;
        let types = inferred(&resolved, options).ok().filter(|_| are_some)?;
        Some(Prepared { resolved, types, ..self }.with_scope(options))
    }

    /// Determines for which sizes the types hold.
    fn with_scope(mut self, options: ShardOptions<'_>) -> Prepared {
        self.open = symbols_of_inputs(&self);
        if let Some(open) = options.open {
            self.open.retain(|name| open.iter().any(|(known, _)| known == name));
        }
        self.scope = Scope::new(&self, options);
        self
    }
}

fn inferred(resolved: &Resolved, options: ShardOptions<'_>) -> Result<Inference, Vec<Finding>> {
    let open = options.open.unwrap_or_default().iter();
    let open: HashSet<String> = open.map(|(name, _)| name.clone()).collect();
    let options = InferOptions {
        inputs: options.inputs,
        symbols: options.symbols,
        sizes: (!open.is_empty()).then_some(&open),
        // A branch that is not taken may be valid for other sizes only.
        inner_may_contradict: true,
        ..InferOptions::default()
    };
    infer(resolved, options)
}

/// Returns the model with calls of functions inlined and `Gradient` nodes expanded, as far as
/// possible, and the nodes of `model` for which its nodes were made.
pub(crate) fn inlined(model: &Model, registry: &Registry) -> Result<(Model, Origins), ShardError> {
    flatten(model, registry).map_err(|error| match error {
        DeriveError::Refused(findings) => ShardError::Invalid(findings),
        DeriveError::Option(why) => ShardError::Configuration(why),
        DeriveError::Invalid(rejected) => ShardError::Rejected(rejected),
    })
}

pub(crate) fn newest_forms(model: Model, registry: &Registry) -> Model {
    let newest = registry.versions("").map_or(1, |(_, newest)| newest);
    let options = ConvertOptions {
        target: Target::new().opset("", newest),
        expand: false,
        granted: Vec::new(),
        like_reference: false,
    };
    // One node without an exact newer form keeps the model as it is; such nodes run whole.
    match convert_in_any_order(&model, registry, &options) {
        Ok(converted) => converted.model,
        Err(_) => model,
    }
}

pub(crate) fn prepare(
    model: Model,
    registry: &Registry,
    options: ShardOptions<'_>,
) -> Result<Prepared, ShardError> {
    let (configuration, devices) = chosen_configuration(&model, options.configuration)?;
    let mut resolved = resolve(model, registry.clone()).map_err(ShardError::Invalid)?;
    let mut types = inferred(&resolved, options).map_err(ShardError::Invalid)?;
    // Sequences stay on their devices; the tensors in them can move.
    if unpack_sequences(&mut resolved, &types) > 0 {
        types = inferred(&resolved, options).map_err(ShardError::Invalid)?;
    }
    let symbols = symbols_of(&resolved, &types, options.symbols);
    let (residents, unreturned) = (options.residents.to_vec(), options.unreturned.to_vec());
    let prepared = Prepared {
        resolved,
        types,
        symbols,
        open: HashSet::new(),
        scope: None,
        configuration,
        devices,
        sizes: Vec::new(),
        outputs: options.outputs,
        residents,
        unreturned,
        whole_bodies: options.whole_bodies,
    };
    Ok(prepared.with_scope(options))
}

/// Returns the name of a configuration and the number of its devices. Without `wanted` it is the
/// only configuration of the model.
///
/// # Errors
///
/// No configuration or several of them fit, or the number of devices is missing or out of range.
pub fn chosen_configuration(
    model: &Model,
    wanted: Option<&str>,
) -> Result<(String, usize), ShardError> {
    let all = configurations(model);
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let names = || {
        let names: Vec<String> = all.iter().map(|one| format!("'{}'", text(one.name))).collect();
        names.join(", ")
    };
    let refuse = |why: String| Err(ShardError::Configuration(why));
    let found: Vec<_> = match wanted {
        Some(wanted) => all.iter().filter(|one| one.name == wanted.as_bytes()).collect(),
        None => all.iter().collect(),
    };
    match (&found[..], wanted) {
        ([one], _) if one.name.is_empty() => refuse("the device configuration has no name".into()),
        ([one], _) => {
            let count = one.num_devices.and_then(|count| usize::try_from(count).ok());
            match count.filter(|count| (1..=MOST_DEVICES).contains(count)) {
                Some(count) => Ok((text(one.name), count)),
                None => refuse(format!(
                    "the configuration '{}' has {} devices; 1 to {MOST_DEVICES} can be used",
                    text(one.name),
                    one.num_devices
                        .map_or_else(|| "no number of".into(), |count| count.to_string())
                )),
            }
        }
        ([], Some(wanted)) if all.is_empty() => {
            refuse(format!("the model has no configuration '{wanted}': it has none at all"))
        }
        ([], Some(wanted)) => {
            refuse(format!("the model has no configuration '{wanted}'; it has {}", names()))
        }
        ([], None) => refuse("the model has no device configuration".into()),
        (_, Some(wanted)) => {
            refuse(format!("the model has several configurations with the name '{wanted}'"))
        }
        (_, None) => refuse(format!("choose one of the configurations of the model: {}", names())),
    }
}

/// Maximum number of devices: the size of a plan is that of the model times their number.
const MOST_DEVICES: usize = 1024;

/// Returns the sizes of symbols of the model's inputs: given ones, and those that inference found.
fn symbols_of(
    resolved: &Resolved,
    types: &Inference,
    given: &[(String, i64)],
) -> HashMap<String, usize> {
    let known =
        given.iter().filter_map(|(name, size)| Some((name.clone(), usize::try_from(*size).ok()?)));
    let mut symbols: HashMap<String, usize> = known.collect();
    let model = resolved.model();
    for info in &model.graph(resolved.main()).inputs {
        let declared = info.ty.as_ref().and_then(|ty| model.type_of(ty));
        let found = info.value.and_then(|value| types.ty(value));
        let (Some(declared), Some(found)) = (declared, found) else { continue };
        let dims = declared.shape().into_iter().flatten().zip(found.shape().into_iter().flatten());
        for (declared, found) in dims {
            if let (Some(name), Some(size)) = (declared.as_symbol(), found.size()) {
                symbols.entry(name.to_string()).or_insert(size);
            }
        }
    }
    symbols
}
