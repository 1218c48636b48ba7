//! Invariants of programs, checked before and after each rewrite.

use std::fmt;

use sardonyx_model::{Model, Shape};
use sardonyx_tensor::DataType;

use super::{
    Constant, Conv, Conversion, Link, Numbers, Op, Order, Parameters, Product, ProductForm,
    Program, Region, RegionKind, Slot, Stage, Step, Takes, Test, Truth, is_one_number, same_shape,
};

/// Violated invariant: the step, if it is about one, and the violation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Broken {
    pub(crate) step: Option<usize>,
    pub(crate) what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "step {step}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl Program {
    /// Checks that each value is defined once and before it is read, that operands have the types,
    /// ranks and shapes that their operation requires, and that each step names its nodes.
    ///
    /// # Errors
    ///
    /// The first violation. Values are named by their slots.
    pub(crate) fn verify(&self) -> Result<(), Broken> {
        Verifier { program: self, model: None }.verify()
    }

    /// Checks a program like [`Program::verify`], but names values as `model` does, from which it
    /// was lowered.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub(crate) fn verify_for(&self, model: &Model) -> Result<(), Broken> {
        Verifier { program: self, model: Some(model) }.verify()
    }
}

/// Program that is verified, and the names of its values.
pub(super) struct Verifier<'a> {
    pub(super) program: &'a Program,
    pub(super) model: Option<&'a Model>,
}

impl Verifier<'_> {
    /// Names a value for a message: as in the model, or by its slot.
    pub(super) fn name(&self, slot: Slot) -> String {
        let value = self.program.values.get(slot.index());
        match self.model.zip(value) {
            Some((model, value)) => {
                format!("'{}'", sardonyx_proto::shown(model.text(model.value(value.value).name)))
            }
            None => slot.to_string(),
        }
    }

    /// Describes a value of another element type than `wanted`.
    fn not_of_type(&self, slot: Slot, wanted: DataType) -> String {
        format!("{} is not of type {wanted}", self.name(slot))
    }

    pub(super) fn verify(&self) -> Result<(), Broken> {
        let program = self.program;
        let mut defined = vec![false; program.values.len()];
        let outside = |what: String| Broken { step: None, what };
        for (slot, value) in program.values.iter().enumerate() {
            defined[slot] = matches!(value.constant, Some(Constant::Small(_) | Constant::Large));
        }
        for slot in program.inputs.iter().flatten() {
            let Some(is_defined) = defined.get_mut(slot.index()) else {
                return Err(outside(format!("an input is {slot}, which does not exist")));
            };
            if self.program.value(*slot).order != Order::Rows {
                return Err(outside(format!("the input {} is not in rows", self.name(*slot))));
            }
            if std::mem::replace(is_defined, true) {
                return Err(outside(format!("the input {} is defined twice", self.name(*slot))));
            }
        }
        for (index, step) in program.steps.iter().enumerate() {
            let broken = |what: String| Broken { step: Some(index), what };
            if step.origins.is_empty() {
                return Err(broken("it does no node of the model".to_string()));
            }
            for slot in step.op.operands().into_iter().flatten() {
                match defined.get(slot.index()) {
                    None => return Err(broken(format!("{slot} does not exist"))),
                    // A fill may be a constant although a step computes it.
                    Some(false) if !self.program.is_constant(slot) => {
                        return Err(broken(format!(
                            "{} is read before it is computed",
                            self.name(slot)
                        )));
                    }
                    Some(_) => {}
                }
            }
            for slot in step.outputs.iter().flatten() {
                match defined.get_mut(slot.index()) {
                    None => return Err(broken(format!("{slot} does not exist"))),
                    Some(true) => {
                        return Err(broken(format!("{} is defined twice", self.name(*slot))));
                    }
                    Some(is_defined) => *is_defined = true,
                }
            }
            let what = self.contradiction(&step.op, &step.outputs);
            if let Some(what) = what.or_else(|| self.other_order(step)) {
                return Err(broken(what));
            }
            for (number, body) in step.bodies().iter().enumerate() {
                let inner = Verifier { program: body, ..*self }.verify();
                inner.map_err(|inner| broken(format!("in its body {number}: {inner}")))?;
            }
        }
        for slot in &program.outputs {
            let is_computed = slot.index() < defined.len()
                && (defined[slot.index()] || self.program.is_constant(*slot));
            if !is_computed {
                return Err(outside(format!("the output {} is not computed", self.name(*slot))));
            }
            if self.program.value(*slot).order != Order::Rows {
                return Err(outside(format!("the output {} is not in rows", self.name(*slot))));
            }
        }
        self.contradiction_at_the_end().map_or(Ok(()), |what| Err(outside(what)))
    }

    /// Finds a value in another order than its step accepts.
    fn other_order(&self, step: &Step) -> Option<String> {
        let orders = self.program.orders_of(step);
        let operands = step.op.operands();
        let operands = operands.iter().copied().zip(&orders.operands);
        let results = step.outputs.iter().copied().zip(&orders.outputs);
        let mut alike = None;
        operands.chain(results).find_map(|(slot, takes)| {
            let slot = slot?;
            let order = self.program.value(slot).order;
            let wanted = match takes {
                Takes::Rows => Order::Rows,
                Takes::Alike => *alike.get_or_insert(order),
                Takes::Either { .. } | Takes::Any => order,
            };
            (order != wanted)
                .then(|| format!("{} is not in the order of its step", self.name(slot)))
        })
    }

    /// Finds a contradiction between an operation and its operands or outputs.
    fn contradiction(&self, op: &Op, outputs: &[Option<Slot>]) -> Option<String> {
        let result = outputs.first().copied().flatten();
        match op {
            Op::Product(product) => self.contradiction_in_product(product, result),
            Op::Conv(conv) => self.contradiction_in_conv(conv, result),
            Op::WeightGradient(gradient) => {
                let slots = [gradient.x, gradient.dy].into_iter().chain(result);
                self.find_other_type(slots, DataType::Float)
            }
            Op::ScatterAdd(scatter) => {
                let slots = [scatter.data, scatter.updates].into_iter().chain(result);
                self.find_other_type(slots, scatter.elem)
            }
            Op::PoolGradient(gradient) => {
                if gradient.size == 0 {
                    return Some("an image has no element".to_string());
                }
                let other = self.find_other_type([gradient.places], DataType::Int64);
                let slots = [gradient.dy].into_iter().chain(result);
                other.or_else(|| self.find_other_type(slots, gradient.elem))
            }
            Op::Pointwise(pointwise) => {
                if pointwise.links.is_empty() {
                    return Some("no function is applied".to_string());
                }
                let slots = pointwise.operands.iter().copied().chain(result);
                if let Some(other) = self.find_other_type(slots, pointwise.elem) {
                    return Some(other);
                }
                let beyond = pointwise.links.iter().find_map(|link| match link {
                    Link::Binary { other, .. } if *other >= pointwise.operands.len() => {
                        Some(*other)
                    }
                    _ => None,
                });
                beyond.map(|other| format!("there is no operand {other}"))
            }
            Op::Truth(truth) => self.contradiction_in_truth(truth, result),
            Op::Select(select) => {
                let other = self.find_other_type([select.condition], DataType::Bool);
                let elem = self.program.elem(select.x)?;
                let slots = [select.y].into_iter().chain(result);
                other.or_else(|| self.find_other_type(slots, elem))
            }
            Op::Cast(cast) => {
                let Conversion { from, to, .. } = cast.conversion;
                let mut ends = [(Some(cast.x), from), (result, to)].into_iter();
                ends.find_map(|(slot, wanted)| {
                    let slot =
                        slot.filter(|slot| self.program.elem(*slot).is_some_and(|e| e != wanted))?;
                    Some(self.not_of_type(slot, wanted))
                })
            }
            Op::Scalars(scalars) => self.contradiction_in_scalars(scalars, outputs),
            Op::Elements(elements) => self.contradiction_in_elements(elements, outputs),
            Op::Norm(norm) => {
                if self.program.elem(norm.x).is_some_and(|elem| elem != norm.elem) {
                    return Some(self.not_of_type(norm.x, norm.elem));
                }
                let residual = norm.residual?;
                if residual.sum >= outputs.len() {
                    return Some(format!("there is no output {} for the sum", residual.sum));
                }
                self.other_shape(norm.x, residual.with)
            }
            Op::BatchNorm(norm) => {
                if self.program.elem(norm.x).is_some_and(|elem| elem != norm.elem) {
                    return Some(self.not_of_type(norm.x, norm.elem));
                }
                let Parameters::Folded { scale, shift } = &norm.parameters else {
                    return None;
                };
                if scale.len() != shift.len() {
                    let (factors, summands) = (scale.len(), shift.len());
                    return Some(format!("there are {factors} factors and {summands} summands"));
                }
                let channels = self.program.shape(norm.x)?.get(1)?.size()?;
                (channels != scale.len())
                    .then(|| format!("there are {} factors for {channels} channels", scale.len()))
            }
            Op::Move(moved) => match moved.operands.first() {
                Some(Some(_)) => None,
                _ => Some("there is nothing to move".to_string()),
            },
            Op::Attention(attention) => {
                let order = attention.permute.as_deref()?;
                let is_order = (0..order.len()).all(|axis| order.contains(&axis));
                (order.len() != 4 || !is_order)
                    .then(|| format!("{order:?} is not an order of four axes"))
            }
            Op::Fill(fill) => {
                (fill.one.len() != 1).then(|| format!("it fills with {} elements", fill.one.len()))
            }
            Op::Region(region) => self.contradiction_of_region(region, outputs),
            Op::Reorder(reorder) => {
                let (x, result) = (self.program.value(reorder.x), self.program.value(result?));
                (x.order == result.order)
                    .then(|| format!("{} has that order", self.name(reorder.x)))
            }
            Op::Dequantize(_) | Op::GatherCodes(_) | Op::Opaque(_) => None,
        }
    }

    fn contradiction_in_truth(&self, truth: &Truth, result: Option<Slot>) -> Option<String> {
        let (count, wanted) = match truth.test {
            Test::Compare(_, elem) => (2, elem),
            Test::Logic(_) | Test::Same => (2, DataType::Bool),
            Test::Not => (1, DataType::Bool),
        };
        if truth.operands.len() != count {
            return Some(format!("it reads {} values, not {count}", truth.operands.len()));
        }
        let is_other = |slot: Slot, wanted| self.program.elem(slot).is_some_and(|e| e != wanted);
        let other = truth.operands.iter().find(|slot| is_other(**slot, wanted));
        let made = result.filter(|slot| is_other(*slot, DataType::Bool));
        let other = other.map(|slot| (*slot, wanted));
        other
            .or(made.map(|slot| (slot, DataType::Bool)))
            .map(|(slot, wanted)| self.not_of_type(slot, wanted))
    }

    /// Describes the first value of another element type than `wanted`.
    pub(super) fn find_other_type(
        &self,
        slots: impl IntoIterator<Item = Slot>,
        wanted: DataType,
    ) -> Option<String> {
        let mut slots = slots.into_iter();
        let other =
            slots.find(|slot| self.program.elem(*slot).is_some_and(|elem| elem != wanted))?;
        Some(self.not_of_type(other, wanted))
    }

    fn contradiction_in_product(&self, product: &Product, result: Option<Slot>) -> Option<String> {
        let types = &product.types;
        let of_other_type = [
            (Some(product.a), types.a),
            (Some(product.b), types.b),
            (product.a_zero_point, types.a),
            (product.b_zero_point, types.b),
            (result, types.result),
        ]
        .into_iter()
        .filter_map(|(slot, wanted)| Some((slot?, wanted)))
        .find(|(slot, wanted)| self.program.elem(*slot).is_some_and(|elem| elem != *wanted));
        if let Some((slot, wanted)) = of_other_type {
            return Some(self.not_of_type(slot, wanted));
        }
        if let Some(factors) = product.factors {
            if types.sum != DataType::Int32 || types.result != DataType::Float {
                return Some("only sums of integers are multiplied as floats".to_string());
            }
            let other = self.find_other_type([factors], DataType::Float);
            let size = result.and_then(|result| self.program.shape(result)?.last()?.size());
            let is_one = self.program.shape(factors).is_some_and(is_one_number);
            let count = || self.other_count(&Numbers::Value(factors), size).filter(|_| !is_one);
            if let Some(other) = other.or_else(count) {
                return Some(other);
            }
        }
        if product.form == ProductForm::Gemm
            && let Some(slot) = [product.a, product.b]
                .into_iter()
                .find(|slot| self.program.shape(*slot).is_some_and(|shape| shape.len() != 2))
        {
            return Some(format!("{} is not a matrix", self.name(slot)));
        }
        let mut stages = product.epilogue.0.iter();
        if stages.any(|stage| {
            matches!(stage, Stage::Scale { by: Numbers::Value(_) | Numbers::Known(_), .. })
        }) {
            return Some("it is a product, and scaled by more than one number".to_string());
        }
        let last = |shape: &Shape| shape.len().checked_sub(1);
        self.contradiction_after(&product.epilogue.0, result, last)
    }

    fn contradiction_in_conv(&self, conv: &Conv, result: Option<Slot>) -> Option<String> {
        if self.program.elem(conv.x).is_some_and(|elem| elem != conv.elem) {
            return Some(self.not_of_type(conv.x, conv.elem));
        }
        if let Err(why) = self.program.check_channels(conv) {
            return Some(why.to_string());
        }
        if let Some(gate) = conv.gate {
            if conv.expansion.is_some() {
                return Some("a convolution with a gate has an expansion".to_string());
            }
            if self.program.elem(gate).is_some_and(|elem| elem != conv.elem) {
                return Some(self.not_of_type(gate, conv.elem));
            }
        }
        if let Some(expansion) = &conv.expansion {
            if self.program.value(conv.x).order != Order::ChannelsLast {
                return Some("what is between two convolutions is in rows".to_string());
            }
            let broken = self.contradiction_in_conv(expansion, Some(conv.x));
            if broken.is_some() {
                return broken;
            }
        }
        self.contradiction_after(&conv.epilogue.0, result, |_| Some(1))
    }

    /// Finds a contradiction in a region: bodies must have the captures as inputs, and all outputs.
    fn contradiction_of_region(&self, region: &Region, outputs: &[Option<Slot>]) -> Option<String> {
        let kind = &region.kind;
        let (condition, other) = match kind {
            RegionKind::If { condition } => (Some(*condition), None),
            RegionKind::Loop { trip_count, condition, .. } => (*condition, *trip_count),
            RegionKind::Scan { .. } => (None, None),
        };
        let is = |slot: Slot, wanted| self.program.elem(slot).is_none_or(|elem| elem == wanted);
        if let Some(condition) = condition.filter(|slot| !is(*slot, DataType::Bool)) {
            return Some(format!("the condition {} is not of type bool", self.name(condition)));
        }
        if let Some(count) = other.filter(|slot| !is(*slot, DataType::Int64)) {
            return Some(format!("the trip count {} is not of type int64", self.name(count)));
        }
        let bodies = kind.attributes().len();
        if region.bodies.len() != bodies {
            return Some(format!("there are {} bodies instead of {bodies}", region.bodies.len()));
        }
        region.bodies.iter().enumerate().find_map(|(number, body)| {
            let own = kind.input_count();
            if body.inputs.len() != own + region.captures.len() {
                let [inputs, captures] = [body.inputs.len(), region.captures.len()];
                let own = if own > 0 { format!("{own} values and ") } else { String::new() };
                return Some(format!(
                    "body {number} has {inputs} inputs for {own}{captures} captures"
                ));
            }
            if body.outputs.len() != kind.kept_outputs() + outputs.len() {
                let (has, wanted) = (body.outputs.len(), kind.kept_outputs() + outputs.len());
                return Some(format!("body {number} has {has} outputs instead of {wanted}"));
            }
            region.captures.iter().zip(&body.inputs[own..]).find_map(|(outer, inner)| {
                let inner = (*inner)?;
                let (outside, inside) =
                    (self.program.elem(*outer)?, body.values.get(inner.index())?);
                let inside = inside.ty.as_ref()?.elem()?;
                (outside != inside).then(|| {
                    format!("body {number} reads the {outside} {} as {inside}", self.name(*outer))
                })
            })
        })
    }

    /// Finds a contradiction in the stages of an epilogue; the result has one shape in all stages.
    /// `axis_of` returns the axis of a shape along which numbers apply.
    fn contradiction_after(
        &self,
        stages: &[Stage],
        result: Option<Slot>,
        axis_of: fn(&Shape) -> Option<usize>,
    ) -> Option<String> {
        let result = result?;
        stages.iter().find_map(|stage| match stage {
            // The result may be reshaped after it is written.
            Stage::Add(slot) | Stage::Mul(slot) => {
                let (elem, wanted) = (self.program.elem(*slot)?, self.program.elem(result)?);
                (elem != wanted).then(|| {
                    format!("{} is not of the type of {}", self.name(*slot), self.name(result))
                })
            }
            Stage::Scale { by, axis } | Stage::Bias { by, axis } => {
                let shape = self.program.shape(result);
                if shape.is_some_and(|shape| axis_of(shape) != Some(*axis)) {
                    return Some(format!("its numbers are not those of axis {axis}"));
                }
                self.other_count(by, shape.and_then(|shape| shape.get(*axis)?.size()))
            }
            Stage::Activation(_) => None,
        })
    }

    /// Describes numbers whose count differs from the size of an axis.
    fn other_count(&self, numbers: &Numbers, size: Option<usize>) -> Option<String> {
        let found = match numbers {
            Numbers::One(_) => return None,
            Numbers::Known(numbers) => numbers.len(),
            Numbers::Value(slot) => {
                let shape = self.program.shape(*slot)?;
                let mut long = shape.iter().filter(|dim| dim.known() != Some(1));
                let dim = long.next();
                if long.next().is_some() {
                    return Some(format!("{} is not a vector", self.name(*slot)));
                }
                dim.map_or(Some(1), |dim| dim.size())?
            }
        };
        let size = size.filter(|size| *size != found)?;
        Some(format!("there are {found} numbers for an axis of {size}"))
    }

    fn other_shape(&self, a: Slot, b: Slot) -> Option<String> {
        let is_same = same_shape(self.program.shape(a)?, self.program.shape(b)?);
        (!is_same).then(|| format!("{} and {} do not have one shape", self.name(a), self.name(b)))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use sardonyx_kernels::elementwise::{Binary, Side, Unary};
    use sardonyx_model::{Id, NodeId, Type, ValueId};
    use sardonyx_tensor::{DataType, Tensor};
    use smallvec::{SmallVec, smallvec};

    use crate::program::{
        Attention, BatchNorm, Constant, Conv, ConvWindow, Epilogue, Fill, Images, Link, Move, Norm,
        NormKind, Numbers, Op, Opaque, Order, PaddingSetting, Parameters, Pointwise, Product,
        ProductForm, ProductTypes, Program, Region, RegionKind, Residual, Slot, Stage, Step, Value,
        WindowSettings,
    };

    const A: Slot = Slot(0);
    const B: Slot = Slot(1);
    const W: Slot = Slot(2);
    const P: Slot = Slot(3);
    const Y: Slot = Slot(4);
    const C: Slot = Slot(5);

    /// Makes `y = relu(a x w + b)`: two inputs, a constant, an intermediate value and an output.
    fn valid() -> Program {
        let value = |index: usize, dims: [i64; 2], constant: Option<Constant>| Value {
            value: ValueId::new(index),
            ty: Some(Type::tensor(DataType::Float, dims)),
            constant,
            order: Order::Rows,
        };
        Program {
            values: vec![
                value(0, [2, 4], None),
                value(1, [1, 6], None),
                value(2, [4, 6], Some(Constant::Large)),
                value(3, [2, 6], None),
                value(4, [2, 6], None),
                Value { ty: Some(Type::tensor(DataType::Bool, [1i64])), ..value(5, [1, 1], None) },
            ],
            steps: vec![step(product(), &[P]), step(relu(P), &[Y])],
            inputs: vec![Some(A), Some(B), Some(C)],
            outputs: vec![Y],
            ..Program::default()
        }
    }

    pub(crate) fn step(op: Op, outputs: &[Slot]) -> Step {
        Step {
            op,
            outputs: outputs.iter().copied().map(Some).collect(),
            origins: smallvec![NodeId::new(0)],
        }
    }

    fn bias(by: Numbers, axis: usize) -> Stage {
        Stage::Bias { by, axis }
    }

    fn scale(by: Numbers, axis: usize) -> Stage {
        Stage::Scale { by, axis }
    }

    fn constants(count: usize) -> Numbers {
        Numbers::Known(vec![1.0; count].into())
    }

    fn product() -> Op {
        product_with(|_| {})
    }

    fn product_with(change: impl FnOnce(&mut Product)) -> Op {
        let mut product = Product {
            form: ProductForm::MatMul,
            types: ProductTypes::uniform(DataType::Float),
            a: A,
            b: W,
            a_zero_point: None,
            b_zero_point: None,
            trans_a: false,
            trans_b: false,
            alpha: 1.0,
            factors: None,
            quantized: None,
            addend: None,
            epilogue: Epilogue(smallvec![bias(Numbers::Value(B), 1)]),
        };
        change(&mut product);
        Op::Product(Box::new(product))
    }

    fn pointwise(elem: DataType, links: Vec<Link>, operands: &[Slot]) -> Op {
        let (links, operands) = (links.into(), SmallVec::from_slice(operands));
        Op::Pointwise(Box::new(Pointwise { elem, links, operands }))
    }

    pub(crate) fn relu(of: Slot) -> Op {
        pointwise(DataType::Float, vec![Link::Unary(Unary::Relu)], &[of])
    }

    /// Makes a region whose branches both negate `P`.
    fn region(condition: Slot, change: impl FnOnce(&mut Region)) -> Op {
        let value = || Value {
            value: ValueId::new(3),
            ty: Some(Type::tensor(DataType::Float, [2i64, 6])),
            constant: None,
            order: Order::Rows,
        };
        let body = || Program {
            values: vec![value(), value()],
            steps: vec![step(
                pointwise(DataType::Float, vec![Link::Unary(Unary::Neg)], &[Slot(0)]),
                &[Slot(1)],
            )],
            inputs: vec![Some(Slot(0))],
            outputs: vec![Slot(1)],
            ..Program::default()
        };
        let kind = RegionKind::If { condition };
        let mut region = Region { kind, captures: vec![P], bodies: vec![body(), body()] };
        change(&mut region);
        Op::Region(Box::new(region))
    }

    fn norm(residual: Residual) -> Op {
        Op::Norm(Box::new(Norm {
            kind: NormKind::RootMeanSquare { axis: -1, epsilon: 1e-5 },
            elem: DataType::Float,
            x: P,
            scale: B,
            bias: None,
            residual: Some(residual),
        }))
    }

    type Break = fn(&mut Program);

    /// Changes of a valid program, and the violations that they cause.
    const BROKEN: [(Break, &str); 36] = [
        (|p| p.steps.swap(0, 1), "step 0: %3 is read before it is computed"),
        (|p| p.steps.truncate(1), "the output %4 is not computed"),
        (|p| p.steps[1].op = relu(Slot(9)), "step 1: %9 does not exist"),
        (|p| p.steps[1].outputs[0] = Some(Slot(9)), "step 1: %9 does not exist"),
        (|p| p.steps[1].outputs[0] = Some(P), "step 1: %3 is defined twice"),
        (|p| p.steps[1].outputs[0] = Some(A), "step 1: %0 is defined twice"),
        (|p| p.steps[1].outputs[0] = Some(W), "step 1: %2 is defined twice"),
        (|p| p.inputs[1] = Some(A), "the input %0 is defined twice"),
        (|p| p.inputs[0] = Some(Slot(9)), "an input is %9, which does not exist"),
        (|p| p.outputs[0] = Slot(9), "the output %9 is not computed"),
        (|p| p.steps[0].origins.clear(), "step 0: it does no node of the model"),
        (
            |p| p.steps[0].op = product_with(|product| product.types.a = DataType::Double),
            "step 0: %0 is not of type double",
        ),
        (
            |p| p.steps[0].op = product_with(|product| product.types.b = DataType::Int8),
            "step 0: %2 is not of type int8",
        ),
        (
            |p| p.steps[0].op = product_with(|product| product.types.result = DataType::Int32),
            "step 0: %3 is not of type int32",
        ),
        (
            |p| {
                p.values[1].ty = Some(Type::tensor(DataType::Uint8, [6i64]));
                p.steps[0].op = product_with(|product| product.b_zero_point = Some(B));
            },
            "step 0: %1 is not of type float",
        ),
        (
            |p| {
                p.values[0].ty = Some(Type::tensor(DataType::Float, [4i64]));
                p.steps[0].op = product_with(|product| product.form = ProductForm::Gemm);
            },
            "step 0: %0 is not a matrix",
        ),
        (
            |p| {
                let stage = bias(Numbers::Value(A), 1);
                p.steps[0].op = product_with(|product| product.epilogue.0[0] = stage);
            },
            "step 0: %0 is not a vector",
        ),
        (
            |p| {
                let stage = bias(Numbers::Value(B), 0);
                p.steps[0].op = product_with(|product| product.epilogue.0[0] = stage);
            },
            "step 0: its numbers are not those of axis 0",
        ),
        (
            |p| p.values[1].ty = Some(Type::tensor(DataType::Float, [5i64])),
            "step 0: there are 5 numbers for an axis of 6",
        ),
        (
            |p| {
                let stage = scale(constants(6), 1);
                p.steps[0].op = product_with(|product| product.epilogue.0[0] = stage);
            },
            "step 0: it is a product, and scaled by more than one number",
        ),
        (
            |p| p.steps[1].op = batch_norm(DataType::Double, 6, 6),
            "step 1: %3 is not of type double",
        ),
        (
            |p| p.steps[1].op = batch_norm(DataType::Float, 6, 5),
            "step 1: there are 6 factors and 5 summands",
        ),
        (
            |p| p.steps[1].op = batch_norm(DataType::Float, 5, 5),
            "step 1: there are 5 factors for 6 channels",
        ),
        (
            |p| {
                p.values[1].ty = Some(Type::tensor(DataType::Int32, [2i64, 6]));
                p.steps[0].op = product_with(|product| product.epilogue.0[0] = Stage::Add(B));
            },
            "step 0: %1 is not of the type of %3",
        ),
        (
            |p| p.steps[1].op = pointwise(DataType::Float, vec![], &[P]),
            "step 1: no function is applied",
        ),
        (
            |p| {
                let link = Link::Binary { op: Binary::Add, side: Side::Left, other: 1 };
                p.steps[1].op = pointwise(DataType::Float, vec![link], &[P]);
            },
            "step 1: there is no operand 1",
        ),
        (
            |p| p.steps[1].op = norm(Residual { with: P, sum: 1 }),
            "step 1: there is no output 1 for the sum",
        ),
        (
            |p| p.steps[1].op = norm(Residual { with: A, sum: 0 }),
            "step 1: %3 and %0 do not have one shape",
        ),
        (
            |p| {
                let permute = Some(smallvec![0, 2, 2, 3]);
                let operands = smallvec![Some(P), Some(P), Some(P)];
                p.steps[1].op =
                    Op::Attention(Box::new(Attention { operands, permute, is_joined: false }));
            },
            "step 1: [0, 2, 2, 3] is not an order of four axes",
        ),
        (
            |p| {
                let one = Tensor::from_slice([2], &[1f32, 2.0]).unwrap();
                p.steps[1].op = Op::Fill(Box::new(Fill { one, shape: P }));
            },
            "step 1: it fills with 2 elements",
        ),
        (|p| p.steps[1].op = region(B, |_| {}), "step 1: the condition %1 is not of type bool"),
        (
            |p| p.steps[1].op = region(C, |region| region.bodies.truncate(1)),
            "step 1: there are 1 bodies instead of 2",
        ),
        (
            |p| p.steps[1].op = region(C, |region| region.bodies[1].inputs.clear()),
            "step 1: body 1 has 0 inputs for 1 captures",
        ),
        (
            |p| p.steps[1].op = region(C, |region| region.bodies[0].outputs.push(Slot(0))),
            "step 1: body 0 has 2 outputs instead of 1",
        ),
        (
            |p| {
                p.steps[1].op = region(C, |region| {
                    region.bodies[0].values[0].ty = Some(Type::tensor(DataType::Int8, [2i64]));
                });
            },
            "step 1: body 0 reads the float %3 as int8",
        ),
        (
            |p| p.steps[1].op = region(C, |region| region.bodies[1].inputs[0] = None),
            "step 1: in its body 1: step 0: %0 is read before it is computed",
        ),
    ];

    #[test]
    fn every_way_to_break_a_program_is_found() {
        assert_eq!(valid().verify(), Ok(()));
        for (change, expected) in BROKEN {
            let mut program = valid();
            change(&mut program);
            let broken = program.verify().map_err(|broken| broken.to_string());
            assert_eq!(broken, Err(expected.to_string()));
        }
    }

    fn batch_norm(elem: DataType, factors: usize, summands: usize) -> Op {
        let parameters = Parameters::Folded {
            scale: vec![1.0; factors].into(),
            shift: vec![0.0; summands].into(),
        };
        Op::BatchNorm(Box::new(BatchNorm { elem, x: P, parameters }))
    }

    /// Makes the program of [`valid`] with a convolution of five columns, some stages, and `b` as
    /// bias if `has_bias`.
    fn convolving(has_bias: bool, stages: Vec<Stage>) -> Program {
        let mut program = valid();
        let ty = |dims: &[i64]| Some(Type::tensor(DataType::Float, dims.iter().copied()));
        program.values[0].ty = ty(&[2, 4, 5]);
        program.values[1].ty = ty(&[6]);
        program.values[2].ty = ty(&[6, 4, 1]);
        program.values[3].ty = ty(&[2, 6, 5]);
        program.values[4].ty = ty(&[2, 6, 5]);
        program.steps[0].op = Op::Conv(Box::new(Conv {
            elem: DataType::Float,
            x: A,
            weights: W,
            bias: has_bias.then_some(B),
            group: 1,
            window: ConvWindow::Open(WindowSettings {
                strides: None,
                dilations: None,
                padding: PaddingSetting::Pads(None),
                ceil: false,
            }),
            epilogue: Epilogue(stages.into()),
            expansion: None,
            gate: None,
        }));
        program
    }

    #[test]
    fn the_numbers_of_a_convolution_can_be_one_factor_and_one_bias() {
        let value = || Numbers::Value(B);
        for (has_bias, b_is_constant, stages, expected) in [
            (true, false, vec![], None),
            (true, true, vec![scale(constants(6), 1), bias(constants(6), 1)], None),
            (false, false, vec![scale(constants(6), 1), bias(value(), 1)], None),
            (false, true, vec![bias(constants(6), 1), scale(value(), 1)], None),
            (false, false, vec![scale(Numbers::One(0.5), 1)], None),
            (false, false, vec![scale(value(), 1)], Some("the factor is not a constant")),
            (
                false,
                false,
                vec![scale(Numbers::One(f32::INFINITY), 1)],
                Some("a factor is not finite"),
            ),
            (
                true,
                false,
                vec![scale(constants(6), 1)],
                Some("the bias to scale is not a constant"),
            ),
            (
                false,
                false,
                vec![bias(value(), 1), scale(constants(6), 1)],
                Some("the bias to scale is not a constant"),
            ),
            (
                true,
                false,
                vec![bias(constants(6), 1)],
                Some("there is a bias already, and not both are constants"),
            ),
            (
                false,
                false,
                vec![scale(constants(5), 1)],
                Some("there are 5 numbers for an axis of 6"),
            ),
            (
                false,
                false,
                vec![bias(constants(5), 2)],
                Some("its numbers are not those of axis 2"),
            ),
        ] {
            let mut program = convolving(has_bias, stages);
            if b_is_constant {
                program.values[1].constant = Some(Constant::Large);
                program.inputs[1] = None;
            }
            let broken = program.verify().map_err(|broken| broken.to_string());
            let expected = expected.map(|why| format!("step 0: {why}"));
            assert_eq!(broken.err(), expected);
        }
        let mut program = convolving(false, vec![bias(Numbers::One(0.5), 1)]);
        program.values[2].ty = None;
        let broken = program.verify().map_err(|broken| broken.to_string());
        assert_eq!(broken, Err("step 0: the number of channels is unknown".to_string()));
    }

    #[test]
    fn a_fill_may_be_computed_and_a_constant() {
        let mut program = valid();
        program.values[3].constant = Some(Constant::Fill(Box::new(Tensor::scalar(1f32))));
        assert_eq!(program.verify(), Ok(()));
        program.steps.remove(0);
        assert_eq!(program.verify(), Ok(()));
        program.steps[0].op =
            Op::Opaque(Opaque { operands: smallvec![Some(P), None], images: Images::Rows });
        assert_eq!(program.verify(), Ok(()));
    }

    #[test]
    fn a_move_has_something_to_move() {
        let mut program = valid();
        let kind = crate::program::MoveKind::SAME;
        program.steps[1].op = Op::Move(Box::new(Move { kind, operands: smallvec![None] }));
        let broken = program.verify().map_err(|broken| broken.to_string());
        assert_eq!(broken, Err("step 1: there is nothing to move".to_string()));
    }
}
