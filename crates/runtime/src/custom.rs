//! Custom operators: schemas, rules and kernels that a program registers.
//!
//! They are found by domain and name, before functions of the model and before operators that ONNX
//! Runtime adds to the standard. Operators of the standard cannot be replaced: the meaning of a
//! model must not depend on the program that opens it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sardonyx_model::{AttrValue, Attributes, Model, NodeAttributes, NodeId, Shape, Type, ValueId};
use sardonyx_ops::{AttributeView, Infer, Registry, RegistryError, Schema};
use sardonyx_passes::{Inference, Resolved, RuleAnswer, Rules};
use sardonyx_tensor::{DataType, Element, TensorView, TensorViewMut, Value};
use smallvec::SmallVec;

use crate::error::{KernelError, OperatorError, fail};
use crate::kernel::{Call, Kernel, Target, describe_value};

/// Kernel of a custom operator. Its rules infer the types of outputs.
pub trait CustomKernel: Rules + Send + Sync {
    /// Computes the outputs of one node. Several threads may call it at the same time.
    ///
    /// # Errors
    ///
    /// Cause of the failure; the message of the run names the node.
    fn run(&self, call: &mut OperatorCall<'_, '_>) -> Result<(), OperatorError>;
}

/// Custom operators by domain and name.
#[derive(Clone, Default)]
pub struct CustomOperators {
    kernels: BTreeMap<(&'static str, &'static str), Arc<dyn CustomKernel>>,
    /// Schemas of all operators that models may use; `None` without custom operators.
    registry: Option<Registry>,
}

impl CustomOperators {
    /// Adds an operator, or replaces one that was added before.
    ///
    /// # Errors
    ///
    /// The schema is malformed, or the standard has the operator.
    pub fn add(
        &mut self,
        schema: Schema,
        kernel: Arc<dyn CustomKernel>,
    ) -> Result<(), RegistryError> {
        let (domain, name) = (schema.domain, schema.name);
        if let Some(standard) = Registry::standard().operator(domain, name) {
            let since = standard.newest();
            return Err(RegistryError::Duplicate { domain, name, since });
        }
        let mut registry = self.registry();
        if registry.versions(domain).is_none() {
            registry.set_versions(domain, 1, u32::MAX)?;
        }
        // Another version of the operator, or one that ONNX Runtime adds.
        while let Some(since) = registry.schema(domain, name, u32::MAX).map(|found| found.since) {
            registry.remove(domain, name, since)?;
        }
        registry.register(schema)?;
        self.registry = Some(registry);
        self.kernels.insert((domain, name), kernel);
        Ok(())
    }

    /// Returns the type inference of the operators, unless there are none.
    pub(crate) fn rules(&self) -> Option<&dyn Rules> {
        (!self.kernels.is_empty()).then_some(self)
    }

    /// Returns the schemas of all operators that models may use: the standard's, ONNX Runtime's,
    /// and the custom ones.
    pub fn registry(&self) -> Registry {
        self.registry.clone().unwrap_or_else(Registry::with_microsoft)
    }

    fn find<'k>(&'k self, domain: &'k str, name: &'k str) -> Option<&'k Arc<dyn CustomKernel>> {
        let kernels: &BTreeMap<(&str, &str), Arc<dyn CustomKernel>> = &self.kernels;
        kernels.get(&(domain, name))
    }

    /// Whether an operator is a custom one.
    pub(crate) fn has(&self, domain: &str, name: &str) -> bool {
        self.find(domain, name).is_some()
    }

    /// Returns the kernel of a node, if its schema belongs to a custom operator.
    pub(crate) fn kernel(
        &self,
        resolved: &Resolved,
        inference: &Inference,
        node: NodeId,
        schema: &'static Schema,
    ) -> Option<Box<dyn Kernel>> {
        let kernel = self.find(schema.domain, schema.name)?;
        let model = resolved.model();
        let ty = |value: &Option<ValueId>| inference.ty((*value)?).cloned();
        let given = NodeAttributes::new(model, node);
        let names = model.attributes(node).iter().map(|id| model.attribute(*id).name);
        let values = names.filter_map(|name| {
            let name = model.display(name);
            let value = given.attribute(&name)?.into_owned();
            Some((name.into_owned(), value))
        });
        Some(Box::new(CustomStep {
            schema,
            attributes: Owned(values.collect()),
            outputs: model.outputs(node).iter().map(ty).collect(),
            kernel: Arc::clone(kernel),
        }))
    }
}

impl fmt::Debug for CustomOperators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.kernels.keys()).finish()
    }
}

impl Rules for CustomOperators {
    fn infer(
        &self,
        model: &Model,
        node: NodeId,
        schema: &Schema,
        known: &mut Infer<'_>,
    ) -> RuleAnswer {
        match self.find(schema.domain, schema.name) {
            Some(kernel) => kernel.infer(model, node, schema, known),
            None => RuleAnswer::NoRule,
        }
    }
}

/// Attributes of a node, copied from the model.
struct Owned(Vec<(String, AttrValue<'static>)>);

impl Attributes for Owned {
    fn attribute(&self, name: &str) -> Option<AttrValue<'_>> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.clone())
    }
}

/// Node of a custom operator.
struct CustomStep {
    schema: &'static Schema,
    attributes: Owned,
    /// Inferred types of the outputs.
    outputs: Vec<Option<Type>>,
    kernel: Arc<dyn CustomKernel>,
}

impl Kernel for CustomStep {
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let given = SmallVec::from_elem(false, call.targets.len());
        let mut call = OperatorCall { call, step: self, given };
        self.kernel.run(&mut call).map_err(|error| KernelError::Failed(error.to_string()))?;
        let OperatorCall { call, given, .. } = call;
        for (index, target) in call.targets.iter().enumerate() {
            match target {
                Target::Absent => {}
                // The memory still holds values of another step.
                _ if !given[index] => fail!("the kernel did not write output {index}"),
                Target::Owned(Some(value)) => self.check(index, value)?,
                Target::Owned(None) | Target::Planned { .. } => {}
            }
        }
        Ok(())
    }

    fn describe(&self) -> String {
        "of the program".to_string()
    }
}

impl CustomStep {
    /// Compares an output with its inferred type, by which the kernels of its readers were
    /// selected.
    fn check(&self, index: usize, value: &Value) -> Result<(), KernelError> {
        let Some(ty) = self.outputs.get(index).and_then(Option::as_ref) else {
            return Ok(());
        };
        let fits = match (value, ty) {
            (Value::Tensor(tensor), Type::Tensor(known)) => {
                let of_shape = |shape: &Shape| {
                    let dims = tensor.dims().iter().zip(shape.iter());
                    let mut sizes = dims.map(|(size, dim)| (*size as i64, dim.known()));
                    shape.len() == tensor.rank()
                        && sizes.all(|(size, known)| known.is_none_or(|known| known == size))
                };
                known.elem.is_none_or(|elem| elem == tensor.data_type())
                    && known.shape.as_ref().is_none_or(of_shape)
            }
            _ => ty.value_type().is_none_or(|known| known == value.value_type()),
        };
        if !fits {
            fail!("output {index} is {}, but declared as {ty}", describe_value(value));
        }
        Ok(())
    }
}

/// Call of a custom operator for one node: its attributes, inputs and outputs. A kernel writes
/// every output that [`has_output`](OperatorCall::has_output) reports, by
/// [`output`](OperatorCall::output), [`output_slice`](OperatorCall::output_slice) or
/// [`set_output`](OperatorCall::set_output).
pub struct OperatorCall<'c, 'a> {
    call: &'c mut Call<'a>,
    step: &'c CustomStep,
    /// Whether each output was written.
    given: SmallVec<[bool; 4]>,
}

impl<'c, 'a> OperatorCall<'c, 'a> {
    /// Returns the schema at the version that the node uses.
    #[doc(hidden)]
    pub fn schema(&self) -> &'static Schema {
        self.step.schema
    }

    /// Returns the attributes of the node, with the defaults of its schema for missing ones.
    pub fn attributes(&self) -> AttributeView<'c> {
        AttributeView::new(self.step.schema, &self.step.attributes)
    }

    /// Returns the number of inputs of the node, omitted ones included.
    pub fn input_count(&self) -> usize {
        self.call.input_count()
    }

    /// Whether the node has an input at this index, which is not omitted.
    pub fn has_input(&self, index: usize) -> bool {
        self.call.has_input(index)
    }

    /// Returns the number of outputs of the node, omitted ones included.
    pub fn output_count(&self) -> usize {
        self.call.targets.len()
    }

    /// Whether another node or the caller reads this output. Other outputs need not be written.
    pub fn has_output(&self, index: usize) -> bool {
        self.call.has_output(index)
    }

    /// Returns a dense tensor input, whose elements are contiguous and in row-major order.
    ///
    /// # Errors
    ///
    /// The input is omitted or is not a dense tensor.
    pub fn tensor(&self, index: usize) -> Result<&TensorView<'a>, OperatorError> {
        Ok(self.call.tensor(index)?)
    }

    /// Returns the dims of a dense tensor input, outermost first.
    ///
    /// # Errors
    ///
    /// The input is omitted or is not a dense tensor.
    pub fn dims(&self, index: usize) -> Result<&[usize], OperatorError> {
        Ok(self.call.tensor(index)?.dims())
    }

    /// Returns the elements of a dense tensor input in row-major order.
    ///
    /// # Errors
    ///
    /// The input is omitted, is not a dense tensor, or has another element type than `T`.
    pub fn slice<T: Element>(&self, index: usize) -> Result<&'a [T], OperatorError> {
        Ok(self.call.slice(index)?)
    }

    /// Returns an input that is not a dense tensor: a sequence, a map, an optional or an opaque
    /// value.
    ///
    /// # Errors
    ///
    /// The input is omitted or is a dense tensor.
    pub fn value(&self, index: usize) -> Result<&Value, OperatorError> {
        match self.call.value(index) {
            Some(value) => Ok(value),
            None => {
                let view = self.call.tensor(index)?;
                let (elem, dims) = (view.data_type(), view.dims());
                Err(format!("input {index} is a tensor, {elem}{dims:?}").into())
            }
        }
    }

    /// Returns the content of an opaque input.
    ///
    /// # Errors
    ///
    /// The input is omitted, or does not hold a `T`.
    pub fn opaque<T: 'static>(&self, index: usize) -> Result<&T, OperatorError> {
        let value = self.value(index)?;
        let held = match value {
            Value::Opaque(opaque) => opaque.get(),
            _ => None,
        };
        held.ok_or_else(|| {
            let wanted = std::any::type_name::<T>();
            format!("input {index} is {}, which does not hold {wanted}", value.value_type()).into()
        })
    }

    /// Returns the memory of a dense tensor output. Its content is undefined until it is written.
    ///
    /// # Errors
    ///
    /// Type or shape differ from the inferred ones, memory cannot be allocated, or nothing reads
    /// the output.
    pub fn output(
        &mut self,
        index: usize,
        data_type: DataType,
        dims: &[usize],
    ) -> Result<TensorViewMut<'_>, OperatorError> {
        self.note(index);
        Ok(self.call.output(index, data_type, dims)?)
    }

    /// Returns the elements of a dense tensor output in row-major order, for writing. Their content
    /// is undefined until they are written.
    ///
    /// # Errors
    ///
    /// The element type of `T` or the shape differ from the inferred ones, memory cannot be
    /// allocated, or nothing reads the output.
    pub fn output_slice<T: Element>(
        &mut self,
        index: usize,
        dims: &[usize],
    ) -> Result<&mut [T], OperatorError> {
        self.note(index);
        Ok(self.call.output_slice(index, dims)?)
    }

    /// Sets an output to a value: a tensor of strings, a sequence, or any value that already
    /// exists. A value that nothing reads is dropped.
    ///
    /// # Errors
    ///
    /// Type or shape differ from the inferred ones, or the value exceeds the memory limit.
    pub fn set_output(
        &mut self,
        index: usize,
        value: impl Into<Value>,
    ) -> Result<(), OperatorError> {
        self.note(index);
        Ok(self.call.set_output(index, value.into())?)
    }

    fn note(&mut self, index: usize) {
        if let Some(given) = self.given.get_mut(index) {
            *given = true;
        }
    }
}

impl fmt::Debug for OperatorCall<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperatorCall({} of {} inputs)", self.schema().name, self.input_count())
    }
}
