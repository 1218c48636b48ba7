//! Python classes of operator schemas: `OpSchema` and its parts. Their attributes return copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PySet};
use sardonyx::tool::NEWEST_IR_VERSION;
use sardonyx::tool::message::{NamedMessages, NodeContext};
use sardonyx::tool::schema::{AttrType, Differentiability};

use super::default_value;
use super::description::{AttributeDescription, Description, Parameter, TypeConstraint};
use super::enums::{Determinism, Enumeration, ParameterOption, Support};
use super::standard::{self, Bodies};
use crate::items::Items;
use crate::message::Header;
use crate::shape_inference::{StandardRule, infer_node_outputs};

/// Adds the class `OpSchema` to `module`, and its nested classes and enumerations to `OpSchema`.
pub(crate) fn fill_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<OpSchema>()?;
    let schema = module.getattr("OpSchema")?;
    for part in [
        py.get_type::<AttributePart>(),
        py.get_type::<FormalParameter>(),
        py.get_type::<TypeConstraintParam>(),
    ] {
        let name = part.name()?;
        part.setattr("__qualname__", format!("OpSchema.{name}"))?;
        schema.setattr(name, part)?;
    }
    schema.setattr(ParameterOption::NAME, ParameterOption::get_or_create_class(py)?)?;
    schema.setattr(Differentiability::NAME, Differentiability::get_or_create_class(py)?)?;
    schema.setattr(Determinism::NAME, Determinism::get_or_create_class(py)?)?;
    schema.setattr(Support::NAME, Support::get_or_create_class(py)?)?;
    schema.setattr(AttrType::NAME, AttrType::get_or_create_class(py)?)
}

/// Operator schema: name, version, inputs, outputs, attributes and documentation.
#[pyclass(name = "OpSchema", module = "sardonyx.defs")]
pub(crate) struct OpSchema(pub(crate) Arc<Description>);

/// Maximum number of inputs or outputs that Python sees for an operator without a limit.
const ANY_NUMBER: i32 = i32::MAX;

/// Converts a number of inputs or outputs to an `i32`; a larger number becomes [`ANY_NUMBER`].
fn to_count(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(ANY_NUMBER)
}

impl OpSchema {
    /// Lists the opset versions for which the operator has a function body.
    fn list_bodies(&self) -> Bodies {
        standard::list_bodies(self.0.standard, self.0.since)
    }
}

#[pymethods]
impl OpSchema {
    #[new]
    #[pyo3(signature = (
        name, domain, since_version, doc=String::new(), *, inputs=Items(Vec::new()),
        outputs=Items(Vec::new()), type_constraints=Items(Vec::new()),
        attributes=Items(Vec::new()), node_determinism=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "arguments of the Python function")]
    fn new(
        name: String,
        domain: String,
        since_version: i32,
        doc: String,
        inputs: Items<PyRef<'_, FormalParameter>>,
        outputs: Items<PyRef<'_, FormalParameter>>,
        type_constraints: Items<(String, Items<String>, String)>,
        attributes: Items<PyRef<'_, AttributePart>>,
        node_determinism: Option<Bound<'_, PyAny>>,
    ) -> PyResult<OpSchema> {
        let determinism = match node_determinism {
            Some(member) => Determinism::from_python(&member)?,
            None => Determinism::Unknown,
        };
        let types = type_constraints.0.into_iter().map(|(name, allowed, description)| {
            Arc::new(TypeConstraint { name, allowed: allowed.0, description })
        });
        let description = Description {
            name,
            domain,
            doc,
            since: since_version,
            deprecated: false,
            inputs: inputs.0.iter().map(|part| Arc::clone(&part.0)).collect(),
            outputs: outputs.0.iter().map(|part| Arc::clone(&part.0)).collect(),
            types: types.collect(),
            attributes: attributes.0.iter().map(|part| Arc::clone(&part.0)).collect(),
            determinism,
            counts: [(0, None); 2],
            standard: None,
            inference: None,
        };
        Ok(OpSchema(Arc::new(description.complete(determinism)?)))
    }

    fn __repr__(&self) -> String {
        let Description { name, domain, since, .. } = &*self.0;
        format!("OpSchema(name={name:?}, domain={domain:?}, since_version={since})")
    }

    /// Returns the name of the operator.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    #[setter]
    fn set_name(&mut self, name: String) {
        Arc::make_mut(&mut self.0).name = name;
    }

    /// Returns the domain of the operator; empty for `ai.onnx`.
    #[getter]
    fn domain(&self) -> &str {
        &self.0.domain
    }

    #[setter]
    fn set_domain(&mut self, domain: String) {
        Arc::make_mut(&mut self.0).domain = domain;
    }

    /// Returns the documentation of the operator; None if there is none.
    #[getter]
    fn doc(&self) -> Option<&str> {
        Some(self.0.doc.as_str()).filter(|doc| !doc.is_empty())
    }

    #[setter]
    fn set_doc(&mut self, doc: String) {
        Arc::make_mut(&mut self.0).doc = doc;
    }

    /// Returns `unknown`: the source file of the definition is not recorded.
    #[getter]
    fn file(&self) -> &'static str {
        "unknown"
    }

    /// Returns 0: the source line of the definition is not recorded.
    #[getter]
    fn line(&self) -> i32 {
        0
    }

    /// Returns the maturity of the operator, an `OpSchema.SupportType`.
    #[getter]
    fn support_level<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Support::Common.to_python(py)
    }

    /// Returns the opset version that introduced this version of the operator.
    #[getter]
    fn since_version(&self) -> i32 {
        self.0.since
    }

    /// Whether new models should not use the operator.
    #[getter(deprecated)]
    fn is_deprecated(&self) -> bool {
        self.0.deprecated
    }

    /// Returns the smallest number of inputs.
    #[getter]
    fn min_input(&self) -> i32 {
        to_count(self.0.counts[0].0)
    }

    /// Returns the greatest number of inputs; `OpSchema.is_infinite` of it is True for any number.
    #[getter]
    fn max_input(&self) -> i32 {
        self.0.counts[0].1.map_or(ANY_NUMBER, to_count)
    }

    /// Returns the smallest number of outputs.
    #[getter]
    fn min_output(&self) -> i32 {
        to_count(self.0.counts[1].0)
    }

    /// Returns the greatest number of outputs; `OpSchema.is_infinite` of it is True for any number.
    #[getter]
    fn max_output(&self) -> i32 {
        self.0.counts[1].1.map_or(ANY_NUMBER, to_count)
    }

    /// Returns the formal attributes as a dict of `OpSchema.Attribute` by name.
    #[getter]
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let attributes = PyDict::new(py);
        for attribute in &self.0.attributes {
            attributes.set_item(&attribute.name, AttributePart(Arc::clone(attribute)))?;
        }
        Ok(attributes)
    }

    /// Returns the formal inputs as a list of `OpSchema.FormalParameter`.
    #[getter]
    fn inputs(&self) -> Vec<FormalParameter> {
        let inputs = self.0.inputs.iter();
        inputs.map(|input| FormalParameter(Arc::clone(input))).collect()
    }

    /// Returns the formal outputs as a list of `OpSchema.FormalParameter`.
    #[getter]
    fn outputs(&self) -> Vec<FormalParameter> {
        let outputs = self.0.outputs.iter();
        outputs.map(|output| FormalParameter(Arc::clone(output))).collect()
    }

    /// Returns the type variables as a list of `OpSchema.TypeConstraintParam`.
    #[getter]
    fn type_constraints(&self) -> Vec<TypeConstraintParam> {
        let types = self.0.types.iter();
        types.map(|var| TypeConstraintParam(Arc::clone(var))).collect()
    }

    /// Whether equal inputs give equal outputs, as an `OpSchema.NodeDeterminism`.
    #[getter]
    fn node_determinism<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.determinism.to_python(py)
    }

    /// Whether types and shapes of the outputs can be inferred.
    #[getter]
    fn has_type_and_shape_inference_function(&self) -> bool {
        self.0.inference.is_some() || self.has_data_propagation_function()
    }

    /// Whether inference computes the values of shape tensors. Standard operators do if they have
    /// an inference function.
    #[getter]
    fn has_data_propagation_function(&self) -> bool {
        let since = u32::try_from(self.0.since).unwrap_or(0);
        let standard = self.0.standard;
        standard.is_some_and(|operator| operator.inference_at(since).is_some())
    }

    /// Sets the function that infers types and shapes of the outputs: a callable that takes an
    /// `InferenceContext`. Returns the schema. Raises `TypeError` if `func` is not callable.
    fn set_type_and_shape_inference_function<'py>(
        mut slf: PyRefMut<'py, Self>,
        func: Bound<'py, PyAny>,
    ) -> PyResult<PyRefMut<'py, Self>> {
        if !func.is_callable() {
            return Err(PyTypeError::new_err("the inference function is not callable"));
        }
        Arc::make_mut(&mut slf.0).inference = Some(Arc::new(func.unbind()));
        Ok(slf)
    }

    /// Returns the inference function that was set, or else a callable that applies the rule of the
    /// standard.
    fn get_type_and_shape_inference_function<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(function) = &self.0.inference {
            return Ok(function.bind(py).clone());
        }
        let key = self.0.standard.and_then(|operator| {
            let since = u32::try_from(self.0.since).ok()?;
            Some((operator.domain, operator.name, since))
        });
        Ok(Bound::new(py, StandardRule(key))?.into_any())
    }

    /// Infers the types of a node's outputs and returns them as a dict of serialized TypeProtos by
    /// name. Raises `ValidationError` if the node does not match the schema, and `InferenceError`
    /// if its inputs contradict each other.
    #[pyo3(signature = (
        node_bytes, value_types, input_data=BTreeMap::new(), input_sparse_data=BTreeMap::new(),
        opset_imports=BTreeMap::new(), ir_version=None,
    ))]
    #[expect(clippy::too_many_arguments, reason = "arguments of the Python function")]
    fn _infer_node_outputs<'py>(
        &self,
        py: Python<'py>,
        node_bytes: &[u8],
        value_types: BTreeMap<String, PyBackedBytes>,
        input_data: BTreeMap<String, PyBackedBytes>,
        input_sparse_data: BTreeMap<String, PyBackedBytes>,
        opset_imports: BTreeMap<String, i64>,
        ir_version: Option<i32>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let around = NodeContext {
            types: copy_messages(value_types),
            constants: copy_messages(input_data),
            sparse_constants: copy_messages(input_sparse_data),
            header: Header {
                ir_version: Some(ir_version.map_or(NEWEST_IR_VERSION, i64::from)),
                opset_imports,
            },
        };
        let types = PyDict::new(py);
        for (name, ty) in infer_node_outputs(py, &self.0, node_bytes, around)? {
            types.set_item(name, PyBytes::new(py, &ty))?;
        }
        Ok(types)
    }

    /// Whether a number of inputs or outputs stands for any number.
    #[staticmethod]
    #[pyo3(signature = (count, /))]
    fn is_infinite(count: i32) -> bool {
        count == ANY_NUMBER
    }

    /// Whether the operator is defined by a function that is the same for every node.
    #[getter]
    fn has_function(&self) -> bool {
        !self.list_bodies().fixed.is_empty()
    }

    /// Whether the operator is defined by a function that depends on the node.
    #[getter]
    fn has_context_dependent_function(&self) -> bool {
        !self.list_bodies().of_node.is_empty()
    }

    /// Returns the opset versions for which there is a function that is the same for every node.
    #[getter]
    fn function_opset_versions(&self) -> Vec<i32> {
        self.list_bodies().fixed
    }

    /// Returns the opset versions for which there is a function that depends on the node.
    #[getter]
    fn context_dependent_function_opset_versions(&self) -> Vec<i32> {
        self.list_bodies().of_node
    }

    /// Returns the opset versions for which a function defines the operator, in ascending order.
    #[getter]
    fn all_function_opset_versions(&self) -> Vec<i32> {
        let Bodies { mut fixed, of_node } = self.list_bodies();
        fixed.extend(of_node);
        fixed.sort_unstable();
        fixed.dedup();
        fixed
    }

    /// Returns the function that defines the operator as a serialized FunctionProto; empty if there
    /// is none.
    #[getter]
    fn _function_body<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &standard::make_function_body(self.0.standard, self.0.since, None))
    }

    /// Returns the function that defines the operator at an opset version as a serialized
    /// FunctionProto; empty if there is none.
    #[pyo3(signature = (opset_version, /))]
    fn get_function_with_opset_version<'py>(
        &self,
        py: Python<'py>,
        opset_version: i32,
    ) -> Bound<'py, PyBytes> {
        let body = standard::make_function_body(self.0.standard, self.0.since, Some(opset_version));
        PyBytes::new(py, &body)
    }

    /// Returns the function that defines the operator for one node, as a serialized FunctionProto;
    /// empty if there is none.
    ///
    /// `node` is a serialized NodeProto, and `input_types` are the serialized TypeProtos of its
    /// inputs.
    #[pyo3(signature = (node, input_types, /))]
    fn get_context_dependent_function<'py>(
        &self,
        py: Python<'py>,
        node: &[u8],
        input_types: Items<PyBackedBytes>,
    ) -> Bound<'py, PyBytes> {
        let Description { standard, since, .. } = *self.0;
        let body = standard::make_node_function_body(standard, since, None, node, &input_types.0);
        PyBytes::new(py, &body)
    }

    /// Returns the function that defines the operator for one node at an opset version, as a
    /// serialized FunctionProto; empty if there is none.
    ///
    /// `node` is a serialized NodeProto, and `input_types` are the serialized TypeProtos of its
    /// inputs.
    #[pyo3(signature = (opset_version, node, input_types, /))]
    fn get_context_dependent_function_with_opset_version<'py>(
        &self,
        py: Python<'py>,
        opset_version: i32,
        node: &[u8],
        input_types: Items<PyBackedBytes>,
    ) -> Bound<'py, PyBytes> {
        let Description { standard, since, .. } = *self.0;
        let opset = Some(opset_version);
        let body = standard::make_node_function_body(standard, since, opset, node, &input_types.0);
        PyBytes::new(py, &body)
    }
}

/// Copies serialized messages out of Python objects.
fn copy_messages(messages: BTreeMap<String, PyBackedBytes>) -> NamedMessages {
    messages.into_iter().map(|(name, bytes)| (name, bytes.to_vec())).collect()
}

/// Formal attribute of an operator.
///
/// Takes `(name, type, description="", *, required=True)`, or `(name, default_value,
/// description="")` with a default value that is an AttributeProto.
#[pyclass(name = "Attribute", module = "sardonyx.defs")]
pub(crate) struct AttributePart(pub(crate) Arc<AttributeDescription>);

#[pymethods]
impl AttributePart {
    /// Creates a formal attribute from a type, or from a default value (an AttributeProto).
    ///
    /// # Errors
    ///
    /// `TypeError` if both or neither are given, or for `required` with a default value.
    #[new]
    #[pyo3(signature = (name, r#type=None, description=String::new(), *, default_value=None, required=None))]
    fn new(
        name: String,
        r#type: Option<Bound<'_, PyAny>>,
        description: String,
        default_value: Option<Bound<'_, PyAny>>,
        required: Option<bool>,
    ) -> PyResult<AttributePart> {
        let wrong = "an attribute takes a type or a default_value, and required only with a type";
        let (second, named) = match (r#type, default_value) {
            (Some(second), None) => (second, false),
            (None, Some(second)) => (second, true),
            _ => return Err(PyTypeError::new_err(wrong)),
        };
        if !named && second.is_instance(AttrType::get_or_create_class(second.py())?)? {
            return Ok(AttributePart(Arc::new(AttributeDescription {
                name,
                description,
                ty: AttrType::from_python(&second)?,
                required: required.unwrap_or(true),
                default: Vec::new(),
            })));
        }
        if required.is_some() {
            return Err(PyTypeError::new_err(wrong));
        }
        let default: PyBackedBytes = second.call_method0("SerializeToString")?.extract()?;
        Ok(AttributePart(Arc::new(AttributeDescription {
            name,
            description,
            ty: default_value::parse_type(&default)?,
            required: false,
            default: default.to_vec(),
        })))
    }

    /// Returns the name of the attribute.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the documentation of the attribute.
    #[getter]
    fn description(&self) -> &str {
        &self.0.description
    }

    /// Returns the type of the attribute, an `OpSchema.AttrType`.
    #[getter]
    fn r#type<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.ty.to_python(py)
    }

    /// Returns the default value as a serialized AttributeProto; empty if there is none.
    #[getter]
    fn _default_value<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.default)
    }

    /// Whether every node must have the attribute.
    #[getter(required)]
    fn is_required(&self) -> bool {
        self.0.required
    }
}

/// Formal input or output of an operator.
#[pyclass(module = "sardonyx.defs")]
pub(crate) struct FormalParameter(pub(crate) Arc<Parameter>);

#[pymethods]
impl FormalParameter {
    #[new]
    #[pyo3(signature = (
        name, type_str, description=String::new(), *, param_option=None, is_homogeneous=true,
        min_arity=1, differentiation_category=None,
    ))]
    fn new(
        name: String,
        type_str: String,
        description: String,
        param_option: Option<Bound<'_, PyAny>>,
        is_homogeneous: bool,
        min_arity: i32,
        differentiation_category: Option<Bound<'_, PyAny>>,
    ) -> PyResult<FormalParameter> {
        Ok(FormalParameter(Arc::new(Parameter {
            name,
            type_str,
            description,
            option: match param_option {
                Some(member) => ParameterOption::from_python(&member)?,
                None => ParameterOption::Single,
            },
            is_homogeneous,
            min_arity,
            category: match differentiation_category {
                Some(member) => Differentiability::from_python(&member)?,
                None => Differentiability::Unknown,
            },
            types: Vec::new(),
        })))
    }

    /// Returns the name of the parameter.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the names of the allowed types as a set; empty before the parameter belongs to an
    /// operator.
    #[getter]
    fn types<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PySet>> {
        PySet::new(py, &self.0.types)
    }

    /// Returns the name of a type variable, such as `T`, or of a type, such as `tensor(float)`.
    #[getter]
    fn type_str(&self) -> &str {
        &self.0.type_str
    }

    /// Returns the documentation of the parameter.
    #[getter]
    fn description(&self) -> &str {
        &self.0.description
    }

    /// Returns the number of values that the parameter takes, an `OpSchema.FormalParameterOption`.
    #[getter]
    fn option<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.option.to_python(py)
    }

    /// Whether all values of a variadic parameter must have the same type.
    #[getter]
    fn is_homogeneous(&self) -> bool {
        self.0.is_homogeneous
    }

    /// Returns the smallest number of values of a variadic parameter.
    #[getter]
    fn min_arity(&self) -> i32 {
        self.0.min_arity
    }

    /// Returns whether gradients flow through the parameter, an `OpSchema.DifferentiationCategory`.
    #[getter]
    fn differentiation_category<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.0.category.to_python(py)
    }
}

/// Type variable of an operator with its allowed types.
#[pyclass(module = "sardonyx.defs")]
pub(crate) struct TypeConstraintParam(pub(crate) Arc<TypeConstraint>);

#[pymethods]
impl TypeConstraintParam {
    #[new]
    #[pyo3(signature = (type_param_str, allowed_type_strs, description=String::new()))]
    fn new(
        type_param_str: String,
        allowed_type_strs: Items<String>,
        description: String,
    ) -> TypeConstraintParam {
        TypeConstraintParam(Arc::new(TypeConstraint {
            name: type_param_str,
            allowed: allowed_type_strs.0,
            description,
        }))
    }

    /// Returns the name of the type variable, such as `T`.
    #[getter]
    fn type_param_str(&self) -> &str {
        &self.0.name
    }

    /// Returns the documentation of the type variable.
    #[getter]
    fn description(&self) -> &str {
        &self.0.description
    }

    /// Returns the names of the allowed types, such as `tensor(float)`.
    #[getter]
    fn allowed_type_strs(&self) -> Vec<&str> {
        self.0.allowed.iter().map(String::as_str).collect()
    }
}
