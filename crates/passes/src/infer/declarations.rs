//! The beginning of a graph: types of its inputs and constants, and types that the file declares.

use hashbrown::{HashMap, HashSet};
use sardonyx_model::{
    Dim, DimValue, GraphId, Id, Initializer, NoExternalData, Producer, Symbol, TensorType, Type,
    TypeKind, TypeProto, ValueId,
};
use sardonyx_ops::{Known, MAX_KNOWN};
use sardonyx_tensor::DataType;
use sardonyx_tensor::shape::RANK_LIMIT;

use super::calls::Call;
use super::denotations;
use super::engine::Engine;
use super::problems::Constant;
use super::unknown::Missing;

/// Facts about declarations that outlive the beginning of their graph.
#[derive(Default)]
pub(super) struct Declarations {
    /// Sizes for the names of the file.
    sizes: HashMap<Symbol, Dim>,
    /// Inputs that are also constants, with the index among the constants.
    pub(super) defaults: HashMap<ValueId, usize>,
    /// Values with more declared dimensions than supported, with their number, in the style of the
    /// reference implementation. It allows them, so they only matter if a node reads them.
    pub(super) too_deep: HashMap<ValueId, usize>,
    /// Values that are declared with an element type outside of the standard, if these are
    /// reported.
    pub(super) undefined_elements: HashSet<ValueId>,
}

impl Engine<'_> {
    /// Sets the types of inputs and constants, and the declared types of other values.
    pub(super) fn begin(&mut self, id: GraphId) {
        if !self.walked.insert(id) {
            self.forget(id);
        }
        self.begin_declared(id);
        self.begin_sparse_initializers(id);
        for (index, initializer) in self.model.graph(id).initializers.iter().enumerate() {
            if let Some(value) = initializer.value {
                self.begin_initializer(id, index, value, initializer);
            }
        }
    }

    /// Forgets the results of an earlier walk through a graph, and the types that its inputs had
    /// for that walk.
    fn forget(&mut self, id: GraphId) {
        let model = self.model;
        let graph = model.graph(id);
        let inputs = graph.inputs.iter().filter_map(|info| info.value);
        let made = graph.nodes.iter().flat_map(|node| model.outputs(*node));
        for value in inputs.chain(made.flatten().copied()) {
            self.found.types.set(value, None);
            self.found.known[value.index()] = None;
        }
    }

    /// Sets the types that the lists of a graph declare.
    fn begin_declared(&mut self, id: GraphId) {
        let model = self.model;
        let graph = model.graph(id);
        let is_body = |call: &Call| model.functions[call.function].body == id;
        let is_read =
            self.style().reads_declarations_in_calls() || !self.calls.last().is_some_and(is_body);
        let declared: &[_] = if is_read { &graph.value_info } else { &[] };
        // Only declarations of inputs of the model hold for all sizes.
        let all_count = self.options.sizes.is_none();
        for info in declared.iter().chain(&graph.outputs).chain(&graph.inputs) {
            let (Some(value), Some(ty)) = (info.value, &info.ty) else { continue };
            let is_input = matches!(model.value(value).producer, Producer::Input(_));
            let is_certain = model.main == Some(id) && is_input;
            // Lists of an inner graph may name values of an outer one, whose own lists hold.
            if (all_count || is_certain) && model.value(value).graph == id {
                self.declare(id, value, ty);
            }
        }
    }

    /// Sets the type that a list of its graph declares for a value.
    fn declare(&mut self, id: GraphId, value: ValueId, ty: &TypeProto) {
        let style = self.style();
        if style.notices_undefined_elements() && has_undefined_element(ty) {
            self.declarations.undefined_elements.insert(value);
        }
        let is_outside_calls = self.calls.is_empty();
        if let Some(meanings) =
            denotations::declared_denotations(self.model, ty).filter(|_| is_outside_calls)
        {
            self.found.denotations.insert(value, meanings);
        }
        let mut declared = self.convert_declared(ty);
        if let Some(rank) = declared.as_mut().and_then(bound_rank) {
            self.report_too_deep(id, value, rank);
        }
        let before = self.found.types.take(value);
        if let (Some(before), Some(declared)) = (&before, &declared)
            && style.compares_declarations()
            && before.merge(declared).is_none()
        {
            self.report_declared_twice(id, value, before, declared);
        }
        self.found.types.set(value, declared);
    }

    /// Converts a declared type in the style of this inference.
    fn convert_declared(&mut self, ty: &TypeProto) -> Option<Type> {
        let (model, style, numbers) = (self.model, self.style(), self.options.symbols);
        let sizes = &mut self.declarations.sizes;
        model.type_with(ty, &mut |value| match value {
            DimValue::Value(size) => style.declared_number(size),
            DimValue::Param(symbol) => {
                let dim = sizes.entry(symbol).or_insert_with(|| {
                    let text = std::str::from_utf8(model.text(symbol));
                    text.map_or(Dim::Unknown, |text| style.declared_text(text, numbers))
                });
                dim.clone()
            }
        })
    }

    /// Sets the types of sparse constants, and compares defaults of inputs with their declarations.
    fn begin_sparse_initializers(&mut self, id: GraphId) {
        let (model, style) = (self.model, self.style());
        for (index, initializer) in model.graph(id).sparse_initializers.iter().enumerate() {
            let (Some(value), Some(values)) = (initializer.value, &initializer.tensor.values)
            else {
                continue;
            };
            let dims = &initializer.tensor.dims;
            match model.value(value).producer {
                Producer::Input(_) if style.compares_sparse_defaults() => {
                    let default = self.constant(id, value, values.data_type, dims);
                    let declared = self.found.types.get(value);
                    let differs = declared.filter(|ty| ty.merge(&default).is_none());
                    if let Some(declared) = differs.map(Type::to_string) {
                        let place = Constant { list: "sparse_initializer", index };
                        self.report_default(id, place, &default, &declared);
                    }
                }
                Producer::SparseInitializer(_) => {
                    let ty = match self.constant(id, value, values.data_type, dims) {
                        Type::Tensor(tensor) if !style.sees_sparse_constants_whole() => {
                            Type::SparseTensor(tensor)
                        }
                        ty => ty,
                    };
                    self.found.types.set(value, Some(ty));
                }
                _ => {}
            }
        }
    }

    /// Sets type and elements of a constant, and compares it with its declaration.
    fn begin_initializer(
        &mut self,
        id: GraphId,
        index: usize,
        value: ValueId,
        initializer: &Initializer,
    ) {
        let (model, style) = (self.model, self.style());
        let proto = &initializer.tensor;
        let is_input = !matches!(model.value(value).producer, Producer::Initializer(_));
        if is_input {
            self.declarations.defaults.insert(value, index);
        }
        let constant = self.constant(id, value, proto.data_type, &proto.dims);
        let declared = self.found.types.get(value);
        let has_type = declared.is_some();
        let differs = declared.filter(|ty| ty.merge(&constant).is_none()).map(Type::to_string);
        let is_undefined = self.declarations.undefined_elements.contains(&value);
        let differs = differs
            .or_else(|| is_undefined.then(|| "a tensor with an undefined element type".into()));
        if let Some(declared) = differs {
            let place = Constant { list: "initializer", index };
            self.report_default(id, place, &constant, &declared);
        }
        // Before IR version 4 each constant had to be an input too, which does not mean that
        // callers override it.
        let had_to_be_input = style.lets_callers_replace_defaults()
            && model.main == Some(id)
            && model.header.ir_version.unwrap_or(0) < 4;
        let is_default = is_input && !had_to_be_input;
        if is_default && style.lets_callers_replace_defaults() {
            return;
        }
        let is_declared = style.prefers_declarations() && (has_type || is_undefined);
        if !is_default && !is_declared {
            self.found.types.set(value, Some(constant));
        }
        let elems = proto.dims.iter().try_fold(1i64, |product, dim| product.checked_mul(*dim));
        if elems.is_some_and(|elems| elems <= MAX_KNOWN as i64)
            && !proto.is_external()
            && let Ok(tensor) = model.tensor(proto, &NoExternalData)
        {
            self.found.known[value.index()] = Some(Box::new(Known::Tensor(tensor)));
        }
    }

    /// Sets the types that the caller gives for inputs of the main graph.
    pub(super) fn begin_given(&mut self, main: GraphId) {
        let inputs = &self.model.graph(main).inputs;
        for (info, given) in inputs.iter().zip(self.options.inputs) {
            if let (Some(value), Some(given)) = (info.value, given) {
                self.found.types.set(value, Some(given.clone()));
            }
        }
        if !self.style().names_open_inputs() {
            return;
        }
        for value in inputs.iter().filter_map(|info| info.value) {
            let Some(mut ty) = self.found.types.take(value) else {
                continue;
            };
            let reason = "the model does not declare it".to_string();
            for (axis, name) in self.name_open(&mut ty) {
                self.note(value, Missing::Dim(axis), None, reason.clone(), Some(name));
            }
            if matches!(&ty, Type::Tensor(tensor) if tensor.shape.is_none()) {
                self.note(value, Missing::Rank, None, reason, None);
            }
            self.found.types.set(value, Some(ty));
        }
    }

    /// Returns the type of a constant.
    fn constant(
        &mut self,
        id: GraphId,
        value: ValueId,
        data_type: Option<i32>,
        dims: &[i64],
    ) -> Type {
        let fits = dims.len() <= RANK_LIMIT;
        if !fits {
            self.report_too_deep(id, value, dims.len());
        }
        Type::Tensor(TensorType {
            elem: data_type.and_then(DataType::from_number),
            shape: fits.then(|| dims.iter().map(|dim| (*dim).into()).collect()),
        })
    }
}

/// Whether a declared tensor has an element type outside of the standard. A missing type does not
/// count.
fn has_undefined_element(ty: &TypeProto) -> bool {
    match &ty.kind {
        Some(TypeKind::Tensor { elem_type, .. } | TypeKind::SparseTensor { elem_type, .. }) => {
            let number = elem_type.filter(|number| *number != 0);
            number.is_some_and(|number| DataType::from_number(number).is_none())
        }
        Some(TypeKind::Sequence { elem_type, .. } | TypeKind::Optional { elem_type, .. }) => {
            elem_type.as_deref().is_some_and(has_undefined_element)
        }
        _ => false,
    }
}

/// Removes the shape of a tensor with too many dimensions, and returns their number.
pub(super) fn bound_rank(ty: &mut Type) -> Option<usize> {
    match ty {
        Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
            let rank = tensor.shape.as_ref()?.len();
            (rank > RANK_LIMIT).then(|| {
                tensor.shape = None;
                rank
            })
        }
        Type::Sequence(inner) | Type::Optional(inner) | Type::Map(_, inner) => bound_rank(inner),
        Type::Opaque { .. } => None,
    }
}
