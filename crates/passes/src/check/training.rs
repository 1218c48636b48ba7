//! Rules about training steps: the names that bindings may use.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    DimValue, Entry, Graph, GraphId, Model, Producer, ShapeProto, Symbol, TypeKind,
};
use sardonyx_proto::shown;

use super::{Checker, Root};
use crate::codes;
use crate::finding::Spot;

/// Declared element type and dimensions. An open dimension is `None`.
type Declared = (Option<i32>, Option<Vec<Option<i64>>>);

/// Names in one graph that bindings may use.
struct Names {
    variables: HashMap<Symbol, Variable>,
    /// Outputs and their positions.
    outputs: HashMap<Symbol, usize>,
}

#[derive(Clone, Copy)]
enum Variable {
    Dense(usize),
    Sparse(usize),
}

/// Names of each graph, collected once.
#[derive(Default)]
struct Known(HashMap<GraphId, Names>);

impl Known {
    fn names(&mut self, model: &Model, graph: GraphId) -> &Names {
        self.0.entry(graph).or_insert_with(|| {
            let graph = model.graph(graph);
            let mut variables = HashMap::new();
            for (index, found) in graph.initializers.iter().enumerate() {
                if let Some(name) = found.tensor.name {
                    variables.entry(name).or_insert(Variable::Dense(index));
                }
            }
            for (index, found) in graph.sparse_initializers.iter().enumerate() {
                let values = found.tensor.values.as_ref();
                if let Some(name) = values.and_then(|values| values.name) {
                    variables.entry(name).or_insert(Variable::Sparse(index));
                }
            }
            let mut outputs = HashMap::new();
            for (index, info) in graph.outputs.iter().enumerate() {
                if let Some(name) = info.name {
                    outputs.entry(name).or_insert(index);
                }
            }
            Names { variables, outputs }
        })
    }
}

impl Checker<'_> {
    pub(super) fn training(&mut self) {
        // The checker of the `onnx` package ignores training steps.
        if self.options.levels.shared_only {
            return;
        }
        let model = self.model;
        let mut known = Known::default();
        let mut bound: HashMap<Symbol, usize> = HashMap::new();
        for (index, step) in model.training_info.iter().enumerate() {
            let root = Root::Training(index);
            let spot = Spot::training(index);
            if let Some(graph) = step.initialization {
                self.check_tree(graph, root);
                for (input, _) in model.graph(graph).inputs.iter().enumerate() {
                    self.add(
                        &codes::INITIALIZATION_INPUT,
                        Spot::graph(graph).item("input", input),
                        |_| "the initialization graph has an input".into(),
                    );
                }
            } else if !step.initialization_binding.is_empty() {
                self.add(&codes::INITIALIZATION_MISSING, spot, |_| {
                    "there are initialization bindings, but no initialization graph".into()
                });
            }
            if let Some(graph) = step.algorithm {
                self.check_tree(graph, root);
            }
            for (field, list, graph) in [
                ("initialization_binding", &step.initialization_binding, step.initialization),
                ("update_binding", &step.update_binding, step.algorithm),
            ] {
                let mut keys = HashSet::new();
                for (position, entry) in list.iter().enumerate() {
                    let spot = spot.item(field, position);
                    self.binding(&mut known, entry, spot, field, [graph, step.algorithm]);
                    let Some(key) = entry.key else { continue };
                    if !keys.insert(key) {
                        self.add(&codes::DUPLICATE_BINDING, spot, |_| {
                            format!("'{}' is assigned twice", shown(model.text(key)))
                        });
                    } else if field == "update_binding"
                        && bound.insert(key, index).is_some_and(|other| other != index)
                    {
                        self.add(&codes::VARIABLE_BOUND_TWICE, spot, |_| {
                            format!(
                                "'{}' is also assigned by another training entry",
                                shown(model.text(key))
                            )
                        });
                    }
                }
            }
        }
        self.clashes();
    }

    /// Checks a binding. A key is an initializer of the main graph or of the step, and a value is
    /// an output of the graph that is evaluated; the step may also assign outputs of the main
    /// graph.
    fn binding(
        &mut self,
        known: &mut Known,
        entry: &Entry,
        spot: Spot,
        field: &str,
        [evaluated, algorithm]: [Option<GraphId>; 2],
    ) {
        let model = self.model;
        let text = |symbol| shown(model.maybe_text(symbol).unwrap_or_default());
        let graphs = [model.main, algorithm];
        let variable = graphs.into_iter().flatten().find_map(|graph| {
            let found = known.names(model, graph).variables.get(&entry.key?).copied()?;
            Some(declared_type(model.graph(graph), found))
        });
        if variable.is_none() {
            self.add(&codes::BINDING_TARGET, spot, |_| {
                format!("'{}' is not an initializer", text(entry.key))
            });
        }
        let main = model.main.filter(|_| field == "update_binding");
        let output = [evaluated, main].into_iter().flatten().find_map(|graph| {
            let index = known.names(model, graph).outputs.get(&entry.value?).copied()?;
            model.graph(graph).outputs.get(index)
        });
        let Some(output) = output else {
            // A missing graph has its own finding.
            if evaluated.is_some() || field == "update_binding" {
                self.add(&codes::BINDING_SOURCE, spot, |_| {
                    format!("'{}' is not an output of the graph that is run", text(entry.value))
                });
            }
            return;
        };
        let given = match output.ty.as_ref().and_then(|ty| ty.kind.as_ref()) {
            Some(TypeKind::Tensor { elem_type, shape, .. }) => {
                (*elem_type, shape.as_ref().map(dims))
            }
            _ => return,
        };
        if let Some(variable) = variable
            && !fits(&variable, &given)
        {
            self.add(&codes::BINDING_TYPE, spot, |_| {
                format!(
                    "'{}' does not have the type and shape of '{}'",
                    text(entry.value),
                    text(entry.key)
                )
            });
        }
    }

    /// Reports names that both the main graph and a training step define.
    fn clashes(&mut self) {
        let model = self.model;
        let Some(main) = model.main else { return };
        let steps = model.training_info.iter();
        let steps: HashSet<GraphId> = steps.filter_map(|step| step.algorithm).collect();
        if steps.is_empty() {
            return;
        }
        let defined = || {
            let values = model.values().map(|(_, value)| value);
            values.filter(|value| value.producer != Producer::Nothing)
        };
        let names: HashSet<Symbol> =
            defined().filter(|value| value.graph == main).map(|value| value.name).collect();
        for value in defined() {
            if steps.contains(&value.graph) && names.contains(&value.name) {
                self.add(&codes::TRAINING_NAME_CLASH, Spot::graph(value.graph), |_| {
                    format!("'{}' is also a name of the main graph", shown(model.text(value.name)))
                });
            }
        }
    }
}

/// Returns the declared type of an initializer.
fn declared_type(graph: &Graph, variable: Variable) -> Declared {
    let known = |dims: &[i64]| Some(dims.iter().map(|dim| Some(*dim)).collect());
    match variable {
        Variable::Dense(index) => {
            let tensor = &graph.initializers[index].tensor;
            (tensor.data_type, known(&tensor.dims))
        }
        Variable::Sparse(index) => {
            let tensor = &graph.sparse_initializers[index].tensor;
            let values = tensor.values.as_ref();
            (values.and_then(|values| values.data_type), known(&tensor.dims))
        }
    }
}

fn dims(shape: &ShapeProto) -> Vec<Option<i64>> {
    let dims = shape.dims.iter();
    dims.map(|dim| match dim.value {
        Some(DimValue::Value(size)) if size >= 0 => Some(size),
        _ => None,
    })
    .collect()
}

fn fits(variable: &Declared, value: &Declared) -> bool {
    let same = |a: Option<i32>, b: Option<i32>| a.is_none() || b.is_none() || a == b;
    let shapes = match (&variable.1, &value.1) {
        (Some(a), Some(b)) => {
            let mut pairs = a.iter().zip(b);
            a.len() == b.len() && pairs.all(|(a, b)| a.is_none() || b.is_none() || a == b)
        }
        _ => true,
    };
    same(variable.0, value.0) && shapes
}
