//! Rules about training steps: which names they may bind to which.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{DimValue, Entry, Graph, GraphId, Producer, ShapeProto, Symbol, TypeKind};
use sardonyx_proto::shown;

use super::{Checker, Root, codes};
use crate::finding::Spot;

/// Element type and dimensions, as far as a file says them; a dimension that may be anything is `None`.
type Declared = (Option<i32>, Option<Vec<Option<i64>>>);

impl Checker<'_> {
    pub(super) fn training(&mut self) {
        // The checker of the `onnx` package does not look at training steps, whatever is in them.
        if self.options.levels.shared_only {
            return;
        }
        let model = self.model;
        let mut bound: HashMap<Symbol, usize> = HashMap::new();
        for (index, step) in model.training_info.iter().enumerate() {
            let root = Root::Training(index);
            let spot = Spot::training(index);
            if let Some(graph) = step.initialization {
                self.tree(graph, root);
                for (input, _) in model.graph(graph).inputs.iter().enumerate() {
                    self.add(
                        &codes::INITIALIZATION_INPUT,
                        Spot::graph(graph).item("input", input),
                        |_| "the graph that gives first values has an input".into(),
                    );
                }
            } else if !step.initialization_binding.is_empty() {
                self.add(&codes::INITIALIZATION_MISSING, spot, |_| {
                    "it binds outputs of an initialization graph that it does not have".into()
                });
            }
            if let Some(graph) = step.algorithm {
                self.tree(graph, root);
                self.clashes(graph);
            }
            for (field, list, graph) in [
                (
                    "initialization_binding",
                    &step.initialization_binding,
                    step.initialization,
                ),
                ("update_binding", &step.update_binding, step.algorithm),
            ] {
                let mut keys = HashSet::new();
                for (position, entry) in list.iter().enumerate() {
                    let spot = spot.item(field, position);
                    self.binding(entry, spot, field, graph, step.algorithm);
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
                                "'{}' is assigned by another training step as well",
                                shown(model.text(key))
                            )
                        });
                    }
                }
            }
        }
    }

    /// A key is an initializer of the main graph or of the step, a value an output of the graph that is evaluated; what a
    /// step assigns may also be an output of the main graph.
    fn binding(
        &mut self,
        entry: &Entry,
        spot: Spot,
        field: &str,
        evaluated: Option<GraphId>,
        algorithm: Option<GraphId>,
    ) {
        let model = self.model;
        let text = |symbol| shown(model.maybe_text(symbol).unwrap_or_default());
        let graphs = [model.main, algorithm];
        let variable = graphs.into_iter().flatten().find_map(|graph| {
            let graph = model.graph(graph);
            entry.key.and_then(|key| variable(graph, key))
        });
        if variable.is_none() {
            self.add(&codes::BINDING_TARGET, spot, |_| {
                format!("'{}' is no initializer", text(entry.key))
            });
        }
        let main = model.main.filter(|_| field == "update_binding");
        let output = [evaluated, main].into_iter().flatten().find_map(|graph| {
            let mut outputs = model.graph(graph).outputs.iter();
            outputs.find(|info| info.name.is_some() && info.name == entry.value)
        });
        let Some(output) = output else {
            // Without the graph, that it is missing has been said.
            if evaluated.is_some() || field == "update_binding" {
                self.add(&codes::BINDING_SOURCE, spot, |_| {
                    format!(
                        "'{}' is no output of the graph that is evaluated",
                        text(entry.value)
                    )
                });
            }
            return;
        };
        let declared = match output.ty.as_ref().and_then(|ty| ty.kind.as_ref()) {
            Some(TypeKind::Tensor {
                elem_type, shape, ..
            }) => (*elem_type, shape.as_ref().map(dims)),
            _ => return,
        };
        if let Some(variable) = variable
            && !fits(&variable, &declared)
        {
            self.add(&codes::BINDING_TYPE, spot, |_| {
                format!(
                    "'{}' is not of the type and shape of '{}'",
                    text(entry.value),
                    text(entry.key)
                )
            });
        }
    }

    /// Names that both the main graph and a training step define.
    fn clashes(&mut self, algorithm: GraphId) {
        let model = self.model;
        let Some(main) = model.main else { return };
        let names: HashSet<Symbol> = model
            .values()
            .filter(|(_, value)| value.graph == main && value.producer != Producer::Nothing)
            .map(|(_, value)| value.name)
            .collect();
        let clashing = model.values().filter(|(_, value)| {
            value.graph == algorithm
                && value.producer != Producer::Nothing
                && names.contains(&value.name)
        });
        for (_, value) in clashing {
            self.add(&codes::TRAINING_NAME_CLASH, Spot::graph(algorithm), |_| {
                format!(
                    "'{}' is a name of the main graph as well",
                    shown(model.text(value.name))
                )
            });
        }
    }
}

/// The type of an initializer by name.
fn variable(graph: &Graph, name: Symbol) -> Option<Declared> {
    let dense = graph
        .initializers
        .iter()
        .find(|found| found.tensor.name == Some(name));
    if let Some(found) = dense {
        let dims = found.tensor.dims.iter().map(|dim| Some(*dim)).collect();
        return Some((found.tensor.data_type, Some(dims)));
    }
    let sparse = graph.sparse_initializers.iter().find(|found| {
        let values = found.tensor.values.as_ref();
        values.is_some_and(|values| values.name == Some(name))
    })?;
    let values = sparse.tensor.values.as_ref()?;
    let dims = sparse.tensor.dims.iter().map(|dim| Some(*dim)).collect();
    Some((values.data_type, Some(dims)))
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
