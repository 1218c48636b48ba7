//! Programs: a model as data, between its graph and the kernels that run it.
//!
//! [`lower`](crate::lower) makes a program from resolved nodes, [rewrites](crate::rewrite) change
//! it, and [`select`](crate::select) chooses a kernel for each step. A program is independent of
//! the instruction set and holds no large constant, so rewrites are decisions only, and each can be
//! left out.
//!
//! Operands of a step have names in its [`Op`]. [`Op::operands`] lists them in the order in which
//! the kernel receives them.

mod commit;
mod elements;
mod movement;
mod orders;
mod print;
mod region;
mod scalars;
mod verify;

use std::sync::Arc;

use sardonyx_kernels::elementwise::{Binary, Compare, Logic, Side, Unary};
use sardonyx_kernels::gemm::Activation;
use sardonyx_model::{GraphId, NodeId, Shape, Type, ValueId};
use sardonyx_tensor::{CastOptions, DataType, Dims, Tensor};
use smallvec::SmallVec;

use crate::precision::count_multiply_adds;

pub(crate) use commit::Commit;
pub(crate) use elements::Elements;
pub(crate) use movement::{
    Concat, ConvWindow, Dropout, Expand, Gather, MoveKind, Padding, PaddingSetting, Reshape,
    Shuffle, Slice, Split, Tile, Transpose, Window, WindowSettings, WriteRows,
};
pub(crate) use orders::{Order, Takes};
pub(crate) use region::{Along, Region, RegionKind};
pub(crate) use scalars::{Instruction, ScalarFunction, ScalarOutput, Scalars, single};
pub(crate) use verify::Broken;

/// Values, and the steps that compute them in topological order.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// Value of each slot.
    pub(crate) values: Vec<Value>,
    pub(crate) steps: Vec<Step>,
    /// Slot of each input of the graph, or of each capture of the region of this body; `None`
    /// without a reader.
    pub(crate) inputs: Vec<Option<Slot>>,
    /// Slots of the graph's outputs, then of values kept for the commit program. An output that the
    /// commit program computes has the slot of its old value here.
    pub(crate) outputs: Vec<Slot>,
    /// Number of `outputs` that are kept for the commit program.
    pub(crate) kept: usize,
    /// State variables.
    pub(crate) state: Vec<StatePorts>,
    /// Commit program: only in a main program, once a rewrite has moved steps there.
    pub(crate) commit: Option<Box<Commit>>,
    /// Inner graph that the program was made from; `None` for the main graph.
    pub(crate) graph: Option<GraphId>,
}

/// Ports of a state variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatePorts {
    /// Index of the input that reads the old value.
    pub input: usize,
    /// Index of the output with the new value.
    pub output: usize,
}

/// Number of a value in a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Type, constant and order of a value.
#[derive(Debug)]
pub(crate) struct Value {
    /// Value in the resolved graph.
    pub(crate) value: ValueId,
    /// Inferred type; dimensions may be expressions.
    pub(crate) ty: Option<Type>,
    pub(crate) constant: Option<Constant>,
    /// Order of the elements where the value has memory of its own.
    pub(crate) order: Order,
}

/// Value that is known before a run.
#[derive(Debug, Clone)]
pub(crate) enum Constant {
    /// Constant of at most [`SMALL`] elements.
    Small(Box<Tensor>),
    /// Constant that repeats one element, given as a tensor of one element. A step may compute it
    /// as well; `select` decides whether it runs.
    Fill(Box<Tensor>),
    /// Any other constant. Rewrites do not read its elements.
    Large,
}

/// Limit: elements of constants that rewrites read.
pub(crate) const SMALL: usize = 64;

/// Operation of a program with its outputs.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// Slot of each output; `None` without a reader.
    pub(crate) outputs: SmallVec<[Option<Slot>; 2]>,
    /// Nodes that the step computes: the one that it was made from, then those fused into it.
    pub(crate) origins: SmallVec<[NodeId; 1]>,
}

/// Operation of a step. An operator that rewrites look into has a variant.
#[derive(Debug)]
pub(crate) enum Op {
    Product(Box<Product>),
    Conv(Box<Conv>),
    WeightGradient(Box<WeightGradient>),
    ScatterAdd(Box<ScatterAdd>),
    PoolGradient(PoolGradient),
    Attention(Box<Attention>),
    Pointwise(Box<Pointwise>),
    Truth(Box<Truth>),
    Select(Select),
    Cast(Box<Cast>),
    Dequantize(Box<Dequantize>),
    GatherCodes(Box<GatherCodes>),
    Scalars(Box<Scalars>),
    Elements(Box<Elements>),
    Norm(Box<Norm>),
    BatchNorm(Box<BatchNorm>),
    Move(Box<Move>),
    Fill(Box<Fill>),
    Reorder(Reorder),
    Region(Box<Region>),
    Opaque(Opaque),
}

/// Rewrites move steps, so they should be small.
const _: () = assert!(size_of::<Step>() <= 144);

/// Matrix product: `MatMul`, `MatMulInteger` or `Gemm`.
#[derive(Debug)]
pub(crate) struct Product {
    pub(crate) form: ProductForm,
    pub(crate) types: ProductTypes,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    /// Number subtracted from the elements of `a` before the product.
    pub(crate) a_zero_point: Option<Slot>,
    /// Number subtracted from the elements of `b` before the product.
    pub(crate) b_zero_point: Option<Slot>,
    pub(crate) trans_a: bool,
    pub(crate) trans_b: bool,
    /// Factor of the product.
    pub(crate) alpha: f32,
    /// Numbers that sums of integers are multiplied by as floats: one, or one for each column.
    pub(crate) factors: Option<Slot>,
    /// Scales and layout of a right operand of few bits.
    pub(crate) quantized: Option<Box<Quantized>>,
    /// Addend of `Gemm`.
    pub(crate) addend: Option<Addend>,
    pub(crate) epilogue: Epilogue,
}

/// Scales, zero points and layout of a right operand of few bits. A product with one has no
/// other zero points.
#[derive(Debug, Clone)]
pub(crate) struct Quantized {
    pub(crate) scales: Slot,
    pub(crate) zeros: Option<Slot>,
    /// Block of each row, if blocks are not of adjacent rows.
    pub(crate) groups: Option<Slot>,
    /// Summand of each column.
    pub(crate) bias: Option<Slot>,
    pub(crate) layout: QuantizedLayout,
    /// Whether the model lets left operands be rounded to 8 bits.
    pub(crate) allows_bytes: bool,
}

impl Quantized {
    fn operands(&self) -> [Option<Slot>; 4] {
        [Some(self.scales), self.zeros, self.groups, self.bias]
    }

    fn operands_mut(&mut self) -> [Option<&mut Slot>; 4] {
        let Quantized { scales, zeros, groups, bias, .. } = self;
        [Some(scales), zeros.as_mut(), groups.as_mut(), bias.as_mut()]
    }
}

/// Layout of elements of few bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QuantizedLayout {
    /// Rows of the matrix.
    pub(crate) depth: usize,
    pub(crate) cols: usize,
    pub(crate) bits: usize,
    /// Whether the highest bit of an element is a sign.
    pub(crate) signed: bool,
    /// Rows of a block.
    pub(crate) block: usize,
    pub(crate) order: CodeOrder,
}

/// Order of elements of few bits and of their scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CodeOrder {
    /// Column by column, in whole blocks, with a scale for each block.
    Columns,
    /// Row by row, or column by column if the matrix is transposed.
    Matrix { transposed: bool, scales: CodeScales },
}

/// Scales of a matrix of few bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum CodeScales {
    One,
    /// One for each column.
    Columns,
    /// One for each block of a column, in the order of the elements.
    Blocks,
}

/// Element types of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProductTypes {
    pub(crate) a: DataType,
    pub(crate) b: DataType,
    /// Type of the accumulator.
    pub(crate) sum: DataType,
    pub(crate) result: DataType,
}

impl ProductTypes {
    /// Returns the types of a product whose operands and result have one type. Floats of 16 bits
    /// are accumulated in `float`.
    pub(crate) fn uniform(elem: DataType) -> ProductTypes {
        let sum = match elem {
            DataType::Float16 | DataType::Bfloat16 => DataType::Float,
            _ => elem,
        };
        ProductTypes { a: elem, b: elem, sum, result: elem }
    }
}

/// Shapes that a product accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProductForm {
    /// NumPy's rules: vectors are rows and columns, batch dimensions broadcast.
    MatMul,
    /// Two matrices.
    Gemm,
}

/// Tensor that is added and broadcasts to the product, with its factor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addend {
    pub(crate) c: Slot,
    pub(crate) beta: f32,
}

/// Convolution.
#[derive(Debug)]
pub(crate) struct Conv {
    pub(crate) elem: DataType,
    /// Input. With an expansion it is computed within the step, and is not an operand.
    pub(crate) x: Slot,
    pub(crate) weights: Slot,
    pub(crate) bias: Option<Slot>,
    pub(crate) group: usize,
    pub(crate) window: ConvWindow,
    pub(crate) epilogue: Epilogue,
    /// Pointwise convolution that computes the input of this depthwise one. Its constants are the
    /// last operands.
    pub(crate) expansion: Option<Box<Conv>>,
    /// Factor of each channel of each image of the input, `[N, C, 1, ...]`. It is the last operand.
    /// A convolution with a gate is pointwise and has no expansion.
    pub(crate) gate: Option<Slot>,
}

impl Conv {
    /// Calls `see` for the weights and the operands after them, without those of an expansion.
    fn visit_parameters(&self, see: &mut dyn FnMut(Option<Slot>)) {
        see(Some(self.weights));
        self.bias.iter().for_each(|bias| see(Some(*bias)));
        self.epilogue.visit_operands(see);
    }

    fn visit_parameters_mut(&mut self, see: &mut dyn FnMut(Option<&mut Slot>)) {
        see(Some(&mut self.weights));
        self.bias.iter_mut().for_each(|bias| see(Some(bias)));
        self.epilogue.visit_operands_mut(see);
    }

    /// Returns the number of operands, without the input, the expansion's and the gate.
    pub(crate) fn own_operand_count(&self) -> usize {
        1 + usize::from(self.bias.is_some()) + self.epilogue.operand_count()
    }
}

/// Gradient of the weights of a convolution with one group: a sum over all outputs for each tap,
/// input channel and output channel. A rewrite makes it from a convolution between transposes.
#[derive(Debug)]
pub(crate) struct WeightGradient {
    /// Input of the convolution.
    pub(crate) x: Slot,
    /// Gradient of the convolution's output.
    pub(crate) dy: Slot,
    /// Window of the convolution.
    pub(crate) window: Window,
}

/// Sum of elements at indices along an axis: `ScatterElements` with the reduction `add`.
#[derive(Debug)]
pub(crate) struct ScatterAdd {
    pub(crate) elem: DataType,
    pub(crate) data: Slot,
    pub(crate) indices: Slot,
    pub(crate) updates: Slot,
    pub(crate) axis: i64,
}

/// Gradient of the input of a `MaxPool`, image by image. A rewrite makes it from a [`ScatterAdd`]
/// to zeros.
#[derive(Debug)]
pub(crate) struct PoolGradient {
    pub(crate) elem: DataType,
    /// Indices that the pool returns.
    pub(crate) places: Slot,
    /// Gradient of the pool's output, with the images as first axis.
    pub(crate) dy: Slot,
    /// Number of elements of an image.
    pub(crate) size: usize,
}

/// Scaled dot-product attention, with the attributes of its node.
#[derive(Debug)]
pub(crate) struct Attention {
    pub(crate) operands: Operands,
    /// Order in which the output's axes are written, among batch, head, row and feature.
    pub(crate) permute: Option<Dims>,
    /// Whether keys and values include the cached ones, of which only the number is read.
    pub(crate) is_joined: bool,
}

/// Pointwise function of all operands, which broadcast.
#[derive(Debug)]
pub(crate) struct Pointwise {
    /// Type of all operands and of the result.
    pub(crate) elem: DataType,
    /// Links of the chain: each reads the result of the previous one, the first reads operand 0.
    pub(crate) links: SmallVec<[Link; 1]>,
    pub(crate) operands: SmallVec<[Slot; 4]>,
}

/// Link of a [`Pointwise`].
#[derive(Debug, Clone)]
pub(crate) enum Link {
    Unary(Unary),
    /// Lower and upper limit, if given.
    Clip(Box<[Option<Tensor>; 2]>),
    Binary {
        op: Binary,
        /// Side of the previous result.
        side: Side,
        /// Index of the operand on the other side.
        other: usize,
    },
}

/// Pointwise predicate of all operands, which broadcast.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) test: Test,
    pub(crate) operands: SmallVec<[Slot; 2]>,
}

/// Predicate of a [`Truth`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// Comparison of two elements of a type.
    Compare(Compare, DataType),
    /// Logical operation on two booleans of any bytes.
    Logic(Logic),
    /// Equality of two booleans.
    Same,
    /// Negation of a boolean.
    Not,
}

/// Selection between elements of two values by booleans. All operands broadcast.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) condition: Slot,
    /// Value where the condition holds.
    pub(crate) x: Slot,
    /// Value elsewhere.
    pub(crate) y: Slot,
}

/// Conversion of elements to another type.
#[derive(Debug)]
pub(crate) struct Cast {
    pub(crate) x: Slot,
    pub(crate) conversion: Conversion,
}

/// Numbers from codes by scales and zero points.
#[derive(Debug)]
pub(crate) struct Dequantize {
    pub(crate) x: Slot,
    pub(crate) scale: Slot,
    pub(crate) zero: Option<Slot>,
    pub(crate) axis: i64,
    /// Number of elements of a block; 0 for whole slices.
    pub(crate) block: usize,
}

/// Slices of a matrix of few bits along its first axis, as numbers.
#[derive(Debug)]
pub(crate) struct GatherCodes {
    pub(crate) table: Slot,
    pub(crate) indices: Slot,
    pub(crate) scales: Slot,
    pub(crate) zeros: Option<Slot>,
    /// Type of the result.
    pub(crate) elem: DataType,
    /// Layout of the table as the right operand of a product: its rows are the operand's columns.
    pub(crate) layout: QuantizedLayout,
    /// Whether a product reads the same table, so that both share one packed form.
    pub(crate) is_tied: bool,
}

/// Types and options of a conversion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversion {
    pub(crate) from: DataType,
    pub(crate) to: DataType,
    pub(crate) options: CastOptions,
}

/// Normalization of rows, possibly of a sum with another tensor.
#[derive(Debug)]
pub(crate) struct Norm {
    pub(crate) kind: NormKind,
    pub(crate) elem: DataType,
    pub(crate) x: Slot,
    pub(crate) scale: Slot,
    pub(crate) bias: Option<Slot>,
    pub(crate) residual: Option<Residual>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum NormKind {
    /// `LayerNormalization`. Statistics are output in the type `stash`.
    Layer { axis: i64, epsilon: f64, stash: DataType },
    /// `RMSNormalization`.
    RootMeanSquare { axis: i64, epsilon: f64 },
}

/// Scale and shift for each channel, along the second axis: `BatchNormalization`.
#[derive(Debug)]
pub(crate) struct BatchNorm {
    pub(crate) elem: DataType,
    pub(crate) x: Slot,
    pub(crate) parameters: Parameters,
}

/// Parameters of a [`BatchNorm`].
#[derive(Debug)]
pub(crate) enum Parameters {
    /// Constant scale and shift of each channel.
    Folded { scale: Arc<[f64]>, shift: Arc<[f64]> },
    /// Scale, bias, mean and variance, computed at run time.
    Given { slots: [Slot; 4], epsilon: f64 },
}

/// Tensor that is added to the first operand before the normalization.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Residual {
    pub(crate) with: Slot,
    /// Index of the output with the sum, if it has a reader.
    pub(crate) sum: usize,
}

/// Move of the elements of the first operand to another place, order or shape.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) kind: MoveKind,
    /// The value that is moved, then operands that depend on the kind.
    pub(crate) operands: Operands,
}

/// Tensor that repeats one element. Its shape is an operand.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) one: Tensor,
    pub(crate) shape: Slot,
}

/// Conversion of a value to the other order.
#[derive(Debug)]
pub(crate) struct Reorder {
    pub(crate) x: Slot,
}

/// Operator that rewrites do not look into; the node has its attributes.
#[derive(Debug)]
pub(crate) struct Opaque {
    pub(crate) operands: Operands,
    /// Orders of images that its kernel accepts.
    pub(crate) images: Images,
}

/// Orders of float images that the kernel of an opaque operator accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Images {
    /// Reads and writes rows.
    Rows,
    /// The first operand and the result have one order. Channels first cost as much time as moving
    /// `gain` times the elements.
    Alike { gain: u64 },
    /// Like `Alike`, for windows, which gain one pass over the elements. Results of one pixel have
    /// both orders, so the operand decides.
    Windows,
    /// The first operand may have either order; results are in rows.
    Read,
}

/// Operands of a step; `None` for an omitted one.
pub(crate) type Operands = SmallVec<[Option<Slot>; 6]>;

/// Stages applied to a result before it is written, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Epilogue(pub(crate) SmallVec<[Stage; 2]>);

/// Stage of an [`Epilogue`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    /// Multiplies by numbers along an axis. A product has a single number; those of a convolution
    /// are folded into its weights.
    Scale { by: Numbers, axis: usize },
    /// Adds numbers along an axis: the last one of a product, the channels of a convolution.
    Bias { by: Numbers, axis: usize },
    /// Adds a tensor of the shape of the result.
    Add(Slot),
    /// Applies a function to each element.
    Activation(Activation),
    /// Multiplies by a tensor of the shape of the result.
    Mul(Slot),
}

/// Numbers for the indices of an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Numbers {
    /// One number for all.
    One(f32),
    /// Elements of a value, in order.
    Value(Slot),
    /// Numbers known when the program is made.
    Known(Arc<[f64]>),
}

impl Numbers {
    /// Returns the slot of the numbers, if they are a value.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self {
            Numbers::Value(slot) => Some(*slot),
            Numbers::One(_) | Numbers::Known(_) => None,
        }
    }
}

impl Stage {
    /// Returns the operand besides the result.
    pub(crate) fn operand(&self) -> Option<Slot> {
        match self {
            Stage::Scale { by, .. } | Stage::Bias { by, .. } => by.slot(),
            Stage::Add(slot) | Stage::Mul(slot) => Some(*slot),
            Stage::Activation(_) => None,
        }
    }
}

impl Stage {
    /// Whether its operand has the shape of the result.
    pub(crate) fn is_elementwise(&self) -> bool {
        matches!(self, Stage::Add(_) | Stage::Mul(_))
    }
}

impl Epilogue {
    /// Calls `see` for the operands of the stages, in order.
    fn visit_operands(&self, mut see: impl FnMut(Option<Slot>)) {
        for slot in self.0.iter().filter_map(Stage::operand) {
            see(Some(slot));
        }
    }

    fn visit_operands_mut(&mut self, mut see: impl FnMut(Option<&mut Slot>)) {
        for stage in &mut self.0 {
            match stage {
                Stage::Scale { by: Numbers::Value(slot), .. }
                | Stage::Bias { by: Numbers::Value(slot), .. }
                | Stage::Add(slot)
                | Stage::Mul(slot) => see(Some(slot)),
                Stage::Scale { .. } | Stage::Bias { .. } | Stage::Activation(_) => {}
            }
        }
    }

    /// Adds a stage.
    ///
    /// # Errors
    ///
    /// The kernel would apply the stage earlier, or has a stage of that kind already.
    pub(crate) fn push(&mut self, stage: Stage) -> Result<(), &'static str> {
        let has = |wanted: fn(&Stage) -> bool| self.0.iter().any(wanted);
        let is_gated = has(|stage| matches!(stage, Stage::Mul(_)));
        let is_activated = has(|stage| matches!(stage, Stage::Activation(_)));
        let is_added_to = has(|stage| matches!(stage, Stage::Add(_)));
        match stage {
            Stage::Mul(_) if is_gated => return Err("there is a factor already"),
            Stage::Mul(_) => {}
            _ if is_gated => return Err("nothing follows a factor"),
            _ if is_activated => return Err("only a factor follows a function"),
            Stage::Scale { .. } if is_added_to => return Err("sums are not scaled"),
            Stage::Add(_) if is_added_to => return Err("another tensor is added already"),
            Stage::Scale { .. } | Stage::Bias { .. } | Stage::Add(_) | Stage::Activation(_) => {}
        }
        self.0.push(stage);
        Ok(())
    }

    /// Returns the number of operands of the stages.
    pub(crate) fn operand_count(&self) -> usize {
        self.0.iter().filter(|stage| stage.operand().is_some()).count()
    }

    /// Yields the biases, in order.
    pub(crate) fn biases(&self) -> impl Iterator<Item = &Numbers> {
        self.0.iter().filter_map(|stage| match stage {
            Stage::Bias { by, .. } => Some(by),
            _ => None,
        })
    }
}

impl Op {
    /// Lists the operands, in the order in which the kernel receives them.
    pub(crate) fn operands(&self) -> Operands {
        let mut operands = Operands::new();
        self.visit_operands(|operand| operands.push(operand));
        operands
    }

    /// Calls `see` for the operands, in the order of [`Op::operands`].
    pub(crate) fn visit_operands(&self, mut see: impl FnMut(Option<Slot>)) {
        let own: &[Option<Slot>] = match self {
            Op::Product(product) => {
                see(Some(product.a));
                see(Some(product.b));
                let zero_points = [product.a_zero_point, product.b_zero_point];
                if zero_points.iter().any(Option::is_some) {
                    zero_points.into_iter().for_each(&mut see);
                }
                product.factors.iter().for_each(|factors| see(Some(*factors)));
                if let Some(quantized) = &product.quantized {
                    quantized.operands().into_iter().for_each(&mut see);
                }
                product.addend.iter().for_each(|addend| see(Some(addend.c)));
                return product.epilogue.visit_operands(see);
            }
            Op::Conv(conv) => {
                see(Some(conv.expansion.as_ref().map_or(conv.x, |expansion| expansion.x)));
                conv.visit_parameters(&mut see);
                conv.expansion.iter().for_each(|first| first.visit_parameters(&mut see));
                return conv.gate.iter().for_each(|gate| see(Some(*gate)));
            }
            Op::WeightGradient(gradient) => {
                see(Some(gradient.x));
                return see(Some(gradient.dy));
            }
            Op::ScatterAdd(scatter) => {
                see(Some(scatter.data));
                see(Some(scatter.indices));
                return see(Some(scatter.updates));
            }
            Op::PoolGradient(gradient) => {
                see(Some(gradient.places));
                return see(Some(gradient.dy));
            }
            Op::Pointwise(pointwise) => {
                return pointwise.operands.iter().for_each(|slot| see(Some(*slot)));
            }
            Op::Truth(truth) => return truth.operands.iter().for_each(|slot| see(Some(*slot))),
            Op::Select(select) => {
                see(Some(select.condition));
                see(Some(select.x));
                return see(Some(select.y));
            }
            Op::Cast(cast) => return see(Some(cast.x)),
            Op::Dequantize(dequantize) => {
                see(Some(dequantize.x));
                see(Some(dequantize.scale));
                return dequantize.zero.iter().for_each(|zero| see(Some(*zero)));
            }
            Op::GatherCodes(gather) => {
                see(Some(gather.indices));
                see(Some(gather.table));
                see(Some(gather.scales));
                return gather.zeros.iter().for_each(|zeros| see(Some(*zeros)));
            }
            Op::Scalars(scalars) => {
                return scalars.operands.iter().for_each(|slot| see(Some(*slot)));
            }
            Op::Elements(elements) => {
                return elements.operands.iter().for_each(|slot| see(Some(*slot)));
            }
            Op::Norm(norm) => {
                see(Some(norm.x));
                see(Some(norm.scale));
                norm.bias.iter().for_each(|bias| see(Some(*bias)));
                return norm.residual.iter().for_each(|residual| see(Some(residual.with)));
            }
            Op::BatchNorm(norm) => {
                see(Some(norm.x));
                if let Parameters::Given { slots, .. } = &norm.parameters {
                    slots.iter().for_each(|slot| see(Some(*slot)));
                }
                return;
            }
            Op::Fill(fill) => return see(Some(fill.shape)),
            Op::Reorder(reorder) => return see(Some(reorder.x)),
            Op::Region(region) => {
                region.kind.visit_operands(&mut see);
                return region.captures.iter().for_each(|slot| see(Some(*slot)));
            }
            Op::Attention(attention) => &attention.operands,
            Op::Move(moved) => &moved.operands,
            Op::Opaque(opaque) => &opaque.operands,
        };
        own.iter().for_each(|operand| see(*operand));
    }

    /// Calls `see` for the operands to change them, in the order of [`Op::visit_operands`].
    pub(crate) fn visit_operands_mut(&mut self, mut see: impl FnMut(Option<&mut Slot>)) {
        let own: &mut [Option<Slot>] = match self {
            Op::Product(product) => {
                see(Some(&mut product.a));
                see(Some(&mut product.b));
                if product.a_zero_point.is_some() || product.b_zero_point.is_some() {
                    see(product.a_zero_point.as_mut());
                    see(product.b_zero_point.as_mut());
                }
                product.factors.iter_mut().for_each(|factors| see(Some(factors)));
                if let Some(quantized) = &mut product.quantized {
                    quantized.operands_mut().into_iter().for_each(&mut see);
                }
                product.addend.iter_mut().for_each(|addend| see(Some(&mut addend.c)));
                return product.epilogue.visit_operands_mut(see);
            }
            Op::Conv(conv) => {
                see(Some(match &mut conv.expansion {
                    Some(expansion) => &mut expansion.x,
                    None => &mut conv.x,
                }));
                conv.visit_parameters_mut(&mut see);
                let expansion = conv.expansion.iter_mut();
                expansion.for_each(|first| first.visit_parameters_mut(&mut see));
                return conv.gate.iter_mut().for_each(|gate| see(Some(gate)));
            }
            Op::WeightGradient(gradient) => {
                see(Some(&mut gradient.x));
                return see(Some(&mut gradient.dy));
            }
            Op::ScatterAdd(scatter) => {
                see(Some(&mut scatter.data));
                see(Some(&mut scatter.indices));
                return see(Some(&mut scatter.updates));
            }
            Op::PoolGradient(gradient) => {
                see(Some(&mut gradient.places));
                return see(Some(&mut gradient.dy));
            }
            Op::Pointwise(pointwise) => {
                return pointwise.operands.iter_mut().for_each(|slot| see(Some(slot)));
            }
            Op::Truth(truth) => return truth.operands.iter_mut().for_each(|slot| see(Some(slot))),
            Op::Select(select) => {
                see(Some(&mut select.condition));
                see(Some(&mut select.x));
                return see(Some(&mut select.y));
            }
            Op::Cast(cast) => return see(Some(&mut cast.x)),
            Op::Dequantize(dequantize) => {
                see(Some(&mut dequantize.x));
                see(Some(&mut dequantize.scale));
                return dequantize.zero.iter_mut().for_each(|zero| see(Some(zero)));
            }
            Op::GatherCodes(gather) => {
                let GatherCodes { table, indices, scales, zeros, .. } = &mut **gather;
                see(Some(indices));
                see(Some(table));
                see(Some(scales));
                return zeros.iter_mut().for_each(|zeros| see(Some(zeros)));
            }
            Op::Scalars(scalars) => {
                return scalars.operands.iter_mut().for_each(|slot| see(Some(slot)));
            }
            Op::Elements(elements) => {
                return elements.operands.iter_mut().for_each(|slot| see(Some(slot)));
            }
            Op::Norm(norm) => {
                see(Some(&mut norm.x));
                see(Some(&mut norm.scale));
                norm.bias.iter_mut().for_each(|bias| see(Some(bias)));
                return norm.residual.iter_mut().for_each(|residual| see(Some(&mut residual.with)));
            }
            Op::BatchNorm(norm) => {
                see(Some(&mut norm.x));
                if let Parameters::Given { slots, .. } = &mut norm.parameters {
                    slots.iter_mut().for_each(|slot| see(Some(slot)));
                }
                return;
            }
            Op::Fill(fill) => return see(Some(&mut fill.shape)),
            Op::Reorder(reorder) => return see(Some(&mut reorder.x)),
            Op::Region(region) => {
                region.kind.visit_operands_mut(&mut see);
                return region.captures.iter_mut().for_each(|slot| see(Some(slot)));
            }
            Op::Attention(attention) => &mut attention.operands,
            Op::Move(moved) => &mut moved.operands,
            Op::Opaque(opaque) => &mut opaque.operands,
        };
        own.iter_mut().for_each(|operand| see(operand.as_mut()));
    }

    /// Returns the element that the result repeats, if known; `first` is the one that the first
    /// operand repeats.
    pub(crate) fn fill<'t>(&'t self, first: Option<&'t Tensor>) -> Option<&'t Tensor> {
        match self {
            Op::Move(moved) if moved.kind.keeps_fills() => first,
            Op::Fill(fill) => Some(&fill.one),
            _ => None,
        }
    }
}

impl Step {
    /// Returns the programs of inner graphs.
    pub(crate) fn bodies(&self) -> &[Program] {
        match &self.op {
            Op::Region(region) => &region.bodies,
            _ => &[],
        }
    }
}

impl Program {
    /// Returns the program, its commit program and the programs in its steps, each before its inner
    /// ones.
    pub(crate) fn tree(&self) -> Vec<&Program> {
        let mut tree = vec![self];
        tree.extend(self.commit.as_ref().map(|commit| &commit.program));
        let mut next = 0;
        while let Some(program) = tree.get(next).copied() {
            tree.extend(program.steps.iter().flat_map(Step::bodies));
            next += 1;
        }
        tree
    }

    /// Returns the step that computes each slot.
    pub(crate) fn makers(&self) -> Vec<Option<usize>> {
        let mut makers = vec![None; self.values.len()];
        for (index, step) in self.steps.iter().enumerate() {
            for slot in step.outputs.iter().flatten() {
                makers[slot.index()] = Some(index);
            }
        }
        makers
    }

    pub(crate) fn value(&self, slot: Slot) -> &Value {
        &self.values[slot.index()]
    }

    /// Returns the inferred shape of a tensor.
    pub(crate) fn shape(&self, slot: Slot) -> Option<&Shape> {
        self.value(slot).ty.as_ref()?.shape()
    }

    /// Returns the inferred element type of a tensor.
    pub(crate) fn elem(&self, slot: Slot) -> Option<DataType> {
        self.value(slot).ty.as_ref()?.elem()
    }

    /// Returns a constant of few elements.
    pub(crate) fn small_constant(&self, slot: Slot) -> Option<&Tensor> {
        match &self.value(slot).constant {
            Some(Constant::Small(tensor)) => Some(tensor),
            _ => None,
        }
    }

    /// Whether the scales and biases of a convolution can be folded into one factor of the weights
    /// and one bias.
    ///
    /// # Errors
    ///
    /// The reason why not.
    pub(crate) fn check_channels(&self, conv: &Conv) -> Result<(), &'static str> {
        let channels = self.shape(conv.weights).and_then(|shape| shape.first()?.size());
        // Whether each summand so far is constant.
        let mut added: SmallVec<[bool; 2]> = SmallVec::new();
        added.extend(conv.bias.map(|slot| self.is_constant(slot)));
        for stage in &conv.epilogue.0 {
            let (by, is_scale) = match stage {
                Stage::Scale { by, .. } => (by, true),
                Stage::Bias { by, .. } => (by, false),
                Stage::Add(_) | Stage::Activation(_) | Stage::Mul(_) => continue,
            };
            let is_constant = self.are_constant(by);
            if matches!(by, Numbers::One(_)) && channels.is_none() {
                return Err("the number of channels is unknown");
            }
            if is_scale && !is_constant {
                return Err("the factor is not a constant");
            }
            if is_scale && !self.may_be_finite(by) {
                return Err("a factor is not finite");
            }
            if is_scale && added.contains(&false) {
                return Err("the bias to scale is not a constant");
            }
            if !is_scale {
                added.push(is_constant);
            }
            if added.len() > 1 && added.contains(&false) {
                return Err("there is a bias already, and not both are constants");
            }
        }
        Ok(())
    }

    /// Whether numbers are finite, as far as known here. Infinite ones folded into weights would
    /// make sums NaN.
    fn may_be_finite(&self, numbers: &Numbers) -> bool {
        match numbers {
            Numbers::One(number) => number.is_finite(),
            Numbers::Known(numbers) => numbers.iter().all(|number| number.is_finite()),
            Numbers::Value(slot) => {
                let elements =
                    self.small_constant(*slot).and_then(|small| small.to_vec::<f32>().ok());
                elements.unwrap_or_default().into_iter().all(f32::is_finite)
            }
        }
    }

    /// Whether numbers are known before a run.
    pub(crate) fn are_constant(&self, numbers: &Numbers) -> bool {
        numbers.slot().is_none_or(|slot| self.is_constant(slot))
    }

    /// Whether a value is known before a run.
    pub(crate) fn is_constant(&self, slot: Slot) -> bool {
        self.value(slot).constant.is_some()
    }
}

impl Program {
    /// Returns the multiply-adds of products with constant matrices, inner graphs included.
    pub(crate) fn constant_products(&self) -> Vec<usize> {
        let product = |program: &Program, step: &Step| {
            let Op::Product(product) = &step.op else { return None };
            if let Some(Quantized { layout, .. }) = product.quantized.as_deref() {
                let sizes = [layout.depth, layout.cols];
                return Some(count_multiply_adds(program.shape(product.a), sizes));
            }
            let shape = program.shape(product.b).filter(|_| program.is_constant(product.b))?;
            let [rows, cols] = &shape[..] else { return None };
            let (rows, cols) = (rows.size()?, cols.size()?);
            let sizes = if product.trans_b { [cols, rows] } else { [rows, cols] };
            Some(count_multiply_adds(program.shape(product.a), sizes))
        };
        let programs = self.tree().into_iter();
        let steps = programs.flat_map(|within| within.steps.iter().map(move |step| (within, step)));
        steps.filter_map(|(within, step)| product(within, step)).collect()
    }
}

/// Whether a shape that broadcasts to another is a vector along one axis of it.
pub(crate) fn is_vector_along(axis: usize, vector: &Shape, shape: &Shape) -> bool {
    let Some(added) = shape.len().checked_sub(vector.len()) else {
        return false;
    };
    axis >= added
        && vector.iter().enumerate().all(|(index, dim)| match shape.get(axis) {
            Some(wanted) if index + added == axis => dim.surely_equals(wanted),
            _ => dim.known() == Some(1),
        })
}

/// Whether a shape is that of one element.
pub(crate) fn is_one_number(shape: &Shape) -> bool {
    shape.iter().all(|size| size.known() == Some(1))
}

/// Whether two shapes are equal for all sizes of the inputs.
pub(crate) fn same_shape(a: &Shape, b: &Shape) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.surely_equals(b))
}
