//! Programs as text: a line for each input, constant, step and output.
//!
//! ```text
//! in    %0: float[N, 8] 'x'
//! const %1: float[8, 8] 'w'
//! %4: float[N, 8] = product %0, %1 |> bias %2 |> gelu    // MatMul 'fc', Add 'fc_bias', Gelu
//! out   %4 'y'
//! ```
//!
//! Stages and links follow `|>`; `·` is the value that they work on. The programs of inner graphs
//! are after their step, further in; slots have numbers of their own there, and the inputs are what
//! the step captures. What happens last is at the end, in the same way.

use std::fmt::{self, Display, Write};

use sardonyx_kernels::elementwise::Side;
use sardonyx_model::Model;
use sardonyx_passes::{Resolved, name_of_node};
use sardonyx_tensor::Tensor;

use super::{
    Along, BatchNorm, Constant, Conv, Dequantize, Elements, GatherCodes, Instruction, Link,
    NormKind, Numbers, Op, Operands, Order, Parameters, Product, ProductForm, Program,
    QuantizedLayout, RegionKind, ScalarFunction, Scalars, Slot, Stage, Step, Test,
};

/// Limit: elements of constants that are shown.
const SHOWN: usize = 8;

/// Prints `%7`.
impl Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl Program {
    /// Prints the program. Leaves out values without readers.
    pub(crate) fn text(&self, resolved: &Resolved) -> String {
        let model = resolved.model();
        let mut text = self.lines(resolved);
        for slot in self.own_outputs() {
            let name = model.display(Some(model.value(self.value(slot).value).name));
            let _ = writeln!(text, "out   {slot} '{name}'");
        }
        self.write_end(&mut text, resolved);
        text
    }

    /// Prints a line for each input, constant and step.
    pub(super) fn lines(&self, resolved: &Resolved) -> String {
        let model = resolved.model();
        let mut text = String::new();
        let name = |slot: Slot| model.display(Some(model.value(self.value(slot).value).name));
        let mut is_read = vec![false; self.values.len()];
        let read = self.steps.iter().flat_map(|step| step.op.operands()).flatten();
        for slot in read.chain(self.outputs.iter().copied()) {
            is_read[slot.index()] = true;
        }
        for slot in self.inputs.iter().flatten() {
            let _ = writeln!(text, "in    {}{} '{}'", slot, self.describe_type(*slot), name(*slot));
        }
        for slot in (0..self.values.len()).map(|index| Slot(index as u32)) {
            let Some(constant) =
                self.value(slot).constant.as_ref().filter(|_| is_read[slot.index()])
            else {
                continue;
            };
            let _ = write!(text, "const {}{}", slot, self.describe_type(slot));
            match constant {
                Constant::Small(tensor) => {
                    let _ = write!(text, " = {}", Few(tensor));
                }
                Constant::Fill(one) => {
                    let _ = write!(text, " = {} everywhere", Few(one));
                }
                Constant::Large => {}
            }
            let _ = writeln!(text, " '{}'", name(slot));
        }
        for step in &self.steps {
            self.step(&mut text, step, model, resolved);
            if let Op::Region(region) = &step.op {
                for (name, body) in region.kind.attributes().iter().zip(&region.bodies) {
                    let _ = writeln!(text, "  {name}");
                    for line in body.text(resolved).lines() {
                        let _ = writeln!(text, "    {line}");
                    }
                }
            }
        }
        text
    }

    fn step(&self, text: &mut String, step: &Step, model: &Model, resolved: &Resolved) {
        for (index, output) in step.outputs.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            let _ = match output {
                Some(slot) => write!(text, "{comma}{slot}{}", self.describe_type(*slot)),
                None => write!(text, "{comma}_"),
            };
        }
        let operator = |node| resolved.schema(node).map_or("?", |schema| schema.name);
        let origins = step.origins.first().copied();
        let _ = write!(text, " = {}    //", Printed(&step.op, origins.map_or("?", operator)));
        for (index, node) in step.origins.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            let _ = write!(text, "{comma} {} '{}'", operator(*node), name_of_node(model, *node));
        }
        text.push('\n');
    }

    /// Prints `: float[N, 8]`, or nothing if unknown, and an order other than rows.
    fn describe_type(&self, slot: Slot) -> String {
        let value = self.value(slot);
        let ty = value.ty.as_ref().map(|ty| format!(": {ty}")).unwrap_or_default();
        match value.order {
            Order::Rows => ty,
            Order::ChannelsLast => ty + " channels last",
        }
    }
}

/// Operation, and the operator of the node that it was made from.
struct Printed<'a>(&'a Op, &'a str);

impl Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Printed(op, operator) = self;
        match op {
            Op::Product(product) => self::product(f, product),
            Op::Conv(conv) => {
                if let Some(expansion) = &conv.expansion {
                    convolution(f, expansion, &expansion.x)?;
                    f.write_str(" |> ")?;
                    return convolution(f, conv, &"·");
                }
                convolution(f, conv, &conv.x)
            }
            Op::WeightGradient(gradient) => {
                let (x, dy, kernel) = (gradient.x, gradient.dy, &gradient.window.kernel);
                write!(f, "weight-gradient {x}, {dy} kernel {kernel:?}")
            }
            Op::ScatterAdd(scatter) => {
                let (data, indices, updates) = (scatter.data, scatter.indices, scatter.updates);
                write!(f, "scatter-add {data}, {indices}, {updates} axis {}", scatter.axis)
            }
            Op::PoolGradient(gradient) => {
                let (places, dy, size) = (gradient.places, gradient.dy, gradient.size);
                write!(f, "pool-gradient {places}, {dy} size {size}")
            }
            Op::Attention(attention) => {
                let joined = if attention.is_joined { "joined " } else { "" };
                write!(f, "attention {joined}{}", List(&attention.operands))?;
                match &attention.permute {
                    Some(order) => write!(f, " |> permute {:?}", &order[..]),
                    None => Ok(()),
                }
            }
            Op::Pointwise(pointwise) => {
                let first = pointwise.operands.first().copied().unwrap_or(Slot(u32::MAX));
                write!(f, "pointwise {first}")?;
                for link in &pointwise.links {
                    f.write_str(" |> ")?;
                    self::link(f, link, &pointwise.operands)?;
                }
                Ok(())
            }
            Op::Truth(truth) => {
                let operands: Operands = truth.operands.iter().copied().map(Some).collect();
                write!(f, "{} {}", truth.test, List(&operands))
            }
            Op::Select(select) => {
                let (condition, x, y) = (select.condition, select.x, select.y);
                write!(f, "select {condition}, {x}, {y}")
            }
            Op::Cast(cast) => write!(f, "cast {} to {}", cast.x, cast.conversion.to),
            Op::Scalars(scalars) => self::scalars(f, scalars),
            Op::Elements(elements) => self::elements(f, elements),
            Op::Norm(norm) => {
                let (name, axis) = match norm.kind {
                    NormKind::Layer { axis, .. } => ("layer", axis),
                    NormKind::RootMeanSquare { axis, .. } => ("root-mean-square", axis),
                };
                write!(f, "norm {name} {}", norm.x)?;
                if let Some(residual) = norm.residual {
                    write!(f, " + {}", residual.with)?;
                }
                write!(f, " axis {axis} * {}", norm.scale)?;
                match norm.bias {
                    Some(bias) => write!(f, " + {bias}"),
                    None => Ok(()),
                }
            }
            Op::BatchNorm(norm) => batch_norm(f, norm),
            Op::Move(moved) => write!(f, "{} {}", moved.kind, List(&moved.operands)),
            Op::Reorder(reorder) => write!(f, "reorder {}", reorder.x),
            Op::Dequantize(dequantize) => {
                let Dequantize { x, scale, zero, axis, block } = &**dequantize;
                write!(f, "dequantize {x}")?;
                zero.iter().try_for_each(|zero| write!(f, " - {zero}"))?;
                write!(f, " by {scale} axis {axis}")?;
                if *block == 0 { Ok(()) } else { write!(f, " block {block}") }
            }
            Op::GatherCodes(gather) => {
                let GatherCodes { table, indices, scales, zeros, layout, .. } = &**gather;
                write!(f, "gather {table}[{indices}]")?;
                zeros.iter().try_for_each(|zeros| write!(f, " - {zeros}"))?;
                write!(f, " by {scales} of {} bits", layout.bits)
            }
            Op::Fill(fill) => write!(f, "fill {} in shape {}", Few(&fill.one), fill.shape),
            Op::Region(region) => {
                let captures: Operands = region.captures.iter().copied().map(Some).collect();
                region_kind(f, &region.kind)?;
                write!(f, " with ({})", List(&captures))
            }
            Op::Opaque(opaque) => write!(f, "{operator} {}", List(&opaque.operands)),
        }
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Test::Compare(op, _) => write!(f, "{op:?}"),
            Test::Logic(op) => write!(f, "{op:?}"),
            Test::Same => f.write_str("Equal"),
            Test::Not => f.write_str("Not"),
        }
    }
}

fn product(f: &mut fmt::Formatter<'_>, product: &Product) -> fmt::Result {
    let transposed = |is: bool| if is { "ᵀ" } else { "" };
    let (a, b) = (transposed(product.trans_a), transposed(product.trans_b));
    let form = match product.form {
        ProductForm::MatMul => "product",
        ProductForm::Gemm => "gemm",
    };
    let zero_point = |slot: Option<Slot>| match slot {
        Some(slot) => format!(" - {slot}"),
        None => String::new(),
    };
    let (z, y) = (zero_point(product.a_zero_point), zero_point(product.b_zero_point));
    write!(f, "{form} {}{a}{z}, {}{b}{y}", product.a, product.b)?;
    product.factors.iter().try_for_each(|factors| write!(f, " |> scale {factors}"))?;
    if let Some(quantized) = &product.quantized {
        let QuantizedLayout { bits, block, .. } = quantized.layout;
        write!(f, " of {bits} bits in blocks of {block} by {}", quantized.scales)?;
        quantized.zeros.iter().try_for_each(|zeros| write!(f, " - {zeros}"))?;
        quantized.groups.iter().try_for_each(|groups| write!(f, " in {groups}"))?;
        quantized.bias.iter().try_for_each(|bias| write!(f, " + {bias}"))?;
        if quantized.allows_bytes {
            f.write_str(" in bytes")?;
        }
    }
    if product.alpha != 1.0 {
        write!(f, " * {}", product.alpha)?;
    }
    if let Some(addend) = product.addend {
        write!(f, " + {} * {}", addend.beta, addend.c)?;
    }
    stages(f, &product.epilogue.0)
}

fn batch_norm(f: &mut fmt::Formatter<'_>, norm: &BatchNorm) -> fmt::Result {
    match &norm.parameters {
        Parameters::Folded { scale, shift } => {
            let (scale, shift) = (FewNumbers(scale), FewNumbers(shift));
            write!(f, "batch-norm {} * {scale} + {shift}", norm.x)
        }
        Parameters::Given { slots: [scale, bias, mean, variance], .. } => {
            let (x, statistics) = (norm.x, format!("mean {mean}, variance {variance}"));
            write!(f, "batch-norm {x}, {statistics} * {scale} + {bias}")
        }
    }
}

/// Names a register: by its operand, by the constant's value, or by the number of the result.
fn register(operands: &[Slot], constants: &[Tensor], number: u32) -> String {
    match (number as usize).checked_sub(operands.len()) {
        None => operands[number as usize].to_string(),
        Some(number) => match constants.get(number) {
            Some(constant) => Few(constant).to_string(),
            None => format!("r{}", number - constants.len()),
        },
    }
}

fn scalars(f: &mut fmt::Formatter<'_>, scalars: &Scalars) -> fmt::Result {
    let register = |number: u32| register(&scalars.operands, &scalars.constants, number);
    f.write_str("scalars")?;
    instructions(f, &scalars.instructions, register)?;
    let outputs: Vec<String> =
        scalars.outputs.iter().map(|output| register(output.register)).collect();
    write!(f, " -> {}", outputs.join(", "))
}

/// Prints functions of elements like [`scalars`].
fn elements(f: &mut fmt::Formatter<'_>, elements: &Elements) -> fmt::Result {
    let register = |number: u32| register(&elements.operands, &elements.constants, number);
    f.write_str("elements")?;
    instructions(f, &elements.instructions, register)?;
    let results: Vec<String> = elements.results.iter().map(|result| register(*result)).collect();
    write!(f, " -> {}", results.join(", "))
}

fn instructions(
    f: &mut fmt::Formatter<'_>,
    instructions: &[Instruction],
    register: impl Fn(u32) -> String,
) -> fmt::Result {
    for (number, Instruction { function, a, b }) in instructions.iter().enumerate() {
        let separator = if number > 0 { ";" } else { "" };
        write!(f, "{separator} r{number} = ")?;
        match function {
            ScalarFunction::Unary(op, _) => write!(f, "{op:?}")?,
            ScalarFunction::Binary(op, _) => write!(f, "{op:?}")?,
            ScalarFunction::Test(test) => write!(f, "{test}")?,
            ScalarFunction::Cast(conversion) => write!(f, "{}", conversion.to)?,
        }
        match function.arity() {
            1 => write!(f, "({})", register(*a))?,
            _ => write!(f, "({}, {})", register(*a), register(*b))?,
        }
    }
    Ok(())
}

fn region_kind(f: &mut fmt::Formatter<'_>, kind: &RegionKind) -> fmt::Result {
    let list = |slots: &[Slot]| slots.iter().copied().map(Some).collect::<Operands>();
    let along = |along: &Along| {
        let back = if along.is_backward { " backward" } else { "" };
        format!("axis {}{back}", along.axis)
    };
    match kind {
        RegionKind::If { condition } => write!(f, "if {condition}"),
        RegionKind::Loop { trip_count, condition, carried } => {
            f.write_str("loop")?;
            if let Some(count) = trip_count {
                write!(f, " up to {count} times")?;
            }
            if let Some(condition) = condition {
                write!(f, " while {condition}")?;
            }
            write!(f, " from ({})", List(&list(carried)))
        }
        RegionKind::Scan { lengths, carried, scanned, stacked } => {
            let scanned: Vec<String> =
                scanned.iter().map(|(slot, way)| format!("{slot} along {}", along(way))).collect();
            let scanned = match lengths {
                Some(lengths) => format!("batch of lengths {lengths}, {}", scanned.join(", ")),
                None => scanned.join(", "),
            };
            write!(f, "scan {scanned} from ({})", List(&list(carried)))?;
            if stacked.iter().any(|way| *way != Along::FIRST) {
                let stacked: Vec<String> = stacked.iter().map(along).collect();
                write!(f, " to {}", stacked.join(", "))?;
            }
            Ok(())
        }
    }
}

fn stages(f: &mut fmt::Formatter<'_>, stages: &[Stage]) -> fmt::Result {
    for stage in stages {
        match stage {
            Stage::Scale { by, .. } => write!(f, " |> scale {by}")?,
            Stage::Bias { by, .. } => write!(f, " |> bias {by}")?,
            Stage::Add(slot) => write!(f, " |> add {slot}")?,
            Stage::Mul(slot) => write!(f, " |> mul {slot}")?,
            Stage::Activation(activation) => write!(f, " |> {activation:?}")?,
        }
    }
    Ok(())
}

fn convolution(f: &mut fmt::Formatter<'_>, conv: &Conv, x: &dyn Display) -> fmt::Result {
    write!(f, "conv {x}")?;
    if let Some(gate) = conv.gate {
        write!(f, " * {gate}")?;
    }
    write!(f, ", {}", conv.weights)?;
    if let Some(bias) = conv.bias {
        write!(f, " + {bias}")?;
    }
    if conv.group != 1 {
        write!(f, ", group {}", conv.group)?;
    }
    stages(f, &conv.epilogue.0)
}

impl Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Numbers::One(number) => number.fmt(f),
            Numbers::Value(slot) => slot.fmt(f),
            Numbers::Known(numbers) => FewNumbers(numbers).fmt(f),
        }
    }
}

/// Numbers as floats, the first few of them.
struct FewNumbers<'a>(&'a [f64]);

impl Display for FewNumbers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<String> =
            self.0.iter().take(SHOWN).map(|number| (*number as f32).to_string()).collect();
        let more = if self.0.len() > SHOWN { ", …" } else { "" };
        write!(f, "[{}{more}]", shown.join(", "))
    }
}

fn link(f: &mut fmt::Formatter<'_>, link: &Link, operands: &[Slot]) -> fmt::Result {
    match link {
        Link::Unary(op) => write!(f, "{op:?}"),
        Link::Clip(limits) => {
            let limit = |limit: &Option<Tensor>| match limit {
                Some(limit) => Few(limit).to_string(),
                None => "none".to_string(),
            };
            write!(f, "Clip {} to {}", limit(&limits[0]), limit(&limits[1]))
        }
        Link::Binary { op, side, other } => {
            let other = operands.get(*other).copied().unwrap_or(Slot(u32::MAX));
            match side {
                Side::Left => write!(f, "{op:?}(·, {other})"),
                Side::Right => write!(f, "{op:?}({other}, ·)"),
            }
        }
    }
}

/// Operands with commas; `_` for an omitted one.
struct List<'a>(&'a Operands);

impl Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operand) in self.0.iter().enumerate() {
            let comma = if index > 0 { ", " } else { "" };
            match operand {
                Some(slot) => write!(f, "{comma}{slot}")?,
                None => write!(f, "{comma}_")?,
            }
        }
        Ok(())
    }
}

/// Elements of a small tensor.
struct Few<'a>(&'a Tensor);

impl Display for Few<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tensor = self.0;
        let shown: Vec<String> =
            (0..tensor.len().min(SHOWN)).map(|i| tensor.element_text(i)).collect();
        let more = if tensor.len() > SHOWN { ", …" } else { "" };
        match tensor.rank() {
            0 => f.write_str(&shown.concat()),
            _ => write!(f, "[{}{more}]", shown.join(", ")),
        }
    }
}
