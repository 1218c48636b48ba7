//! A model as data, between its graph and the kernels that run it.
//!
//! [`lower`](crate::lower) makes a program from resolved nodes, [rewrites](crate::rewrite) change
//! it, and [`select`](crate::select) chooses a kernel for each step. A program knows no instruction
//! set and holds no large constant, so rewrites are decisions only, and each may be undone by
//! leaving it out.
//!
//! What a step reads are operands with names in its [`Op`]. [`Op::operands`] lists them in the
//! order in which the kernel finds them.

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

use crate::precision::multiply_adds;

pub(crate) use commit::Commit;
pub(crate) use elements::Elements;
pub(crate) use movement::{
    Concat, ConvWindow, Dropout, Expand, Gather, MoveKind, Padding, PaddingSetting, Reshape,
    Shuffle, Slice, Split, Tile, Transpose, Window, WindowSettings,
};
pub(crate) use orders::{Order, Takes};
pub(crate) use region::{Along, Region, RegionKind};
pub(crate) use scalars::{Instruction, ScalarFunction, ScalarOutput, Scalars, single};
pub(crate) use verify::Broken;

/// Values, and the steps that compute them in an order in which each is computed before it is read.
#[derive(Debug, Default)]
pub(crate) struct Program {
    /// By slot.
    pub(crate) values: Vec<Value>,
    pub(crate) steps: Vec<Step>,
    /// By input of the graph, or by capture of the region that this is a body of; `None` if nothing
    /// reads it.
    pub(crate) inputs: Vec<Option<Slot>>,
    /// Slots of the graph's outputs, then of the values that are kept until the end of a run. An
    /// output that the commit program computes has the slot of its old value here.
    pub(crate) outputs: Vec<Slot>,
    /// Number of outputs that are not those of the graph, but kept for the end.
    pub(crate) kept: usize,
    /// Values that go from run to run.
    pub(crate) state: Vec<StatePorts>,
    /// End of a run: only in a main program, once a rewrite has moved steps there.
    pub(crate) commit: Option<Box<Commit>>,
    /// The graph that it was made from, if that is an inner one.
    pub(crate) graph: Option<GraphId>,
}

/// Ports of a value that goes from run to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatePorts {
    /// Number of the input that reads the old value.
    pub input: usize,
    /// Number of the output that is the new value.
    pub output: usize,
}

/// A value of a program, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of a value.
#[derive(Debug)]
pub(crate) struct Value {
    /// The value of the resolved graph.
    pub(crate) value: ValueId,
    /// Its type as inferred; dimensions may be expressions.
    pub(crate) ty: Option<Type>,
    pub(crate) constant: Option<Constant>,
    /// How its elements lie where it has memory of its own.
    pub(crate) order: Order,
}

/// A value that is known before anything runs.
#[derive(Debug, Clone)]
pub(crate) enum Constant {
    /// One of at most [`SMALL`] elements.
    Small(Box<Tensor>),
    /// One element in all places, given as a tensor of one element. A step may compute it all the
    /// same: `select` decides whether it runs.
    Fill(Box<Tensor>),
    /// Any other. Rewrites do not look at its elements.
    Large,
}

/// Limit: elements of constants that rewrites may look at.
pub(crate) const SMALL: usize = 64;

/// One thing that a run does.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) op: Op,
    /// `None` for one that nothing reads.
    pub(crate) outputs: SmallVec<[Option<Slot>; 2]>,
    /// The nodes that it does: the one that it was made from, then those that joined it.
    pub(crate) origins: SmallVec<[NodeId; 1]>,
}

/// What a step does. A rewrite that looks into an operator gives it a variant.
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

/// Rewrites move steps about, so steps are small.
const _: () = assert!(size_of::<Step>() <= 144);

/// A matrix product: `MatMul`, `MatMulInteger` or `Gemm`.
#[derive(Debug)]
pub(crate) struct Product {
    pub(crate) form: ProductForm,
    pub(crate) types: ProductTypes,
    pub(crate) a: Slot,
    pub(crate) b: Slot,
    /// What is taken off the elements of `a` before they are multiplied.
    pub(crate) a_zero_point: Option<Slot>,
    /// The same for `b`.
    pub(crate) b_zero_point: Option<Slot>,
    pub(crate) trans_a: bool,
    pub(crate) trans_b: bool,
    /// What the product is multiplied with.
    pub(crate) alpha: f32,
    /// What `Gemm` adds.
    pub(crate) addend: Option<Addend>,
    pub(crate) epilogue: Epilogue,
}

/// The element types of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProductTypes {
    pub(crate) a: DataType,
    pub(crate) b: DataType,
    /// In which the products of elements are added up.
    pub(crate) sum: DataType,
    pub(crate) result: DataType,
}

impl ProductTypes {
    /// Those of a product whose operands and result have one type. Floats of 16 bits are added up
    /// in `float`.
    pub(crate) fn of(elem: DataType) -> ProductTypes {
        let sum = match elem {
            DataType::Float16 | DataType::Bfloat16 => DataType::Float,
            _ => elem,
        };
        ProductTypes { a: elem, b: elem, sum, result: elem }
    }
}

/// Which shapes a product has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProductForm {
    /// NumPy's rules: vectors are rows and columns, leading dimensions broadcast.
    MatMul,
    /// Two matrices.
    Gemm,
}

/// A tensor that broadcasts to the product, and its factor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Addend {
    pub(crate) c: Slot,
    pub(crate) beta: f32,
}

/// A convolution.
#[derive(Debug)]
pub(crate) struct Conv {
    pub(crate) elem: DataType,
    /// If there is an expansion: what that computes, which is then no operand.
    pub(crate) x: Slot,
    pub(crate) weights: Slot,
    pub(crate) bias: Option<Slot>,
    pub(crate) group: usize,
    pub(crate) window: ConvWindow,
    pub(crate) epilogue: Epilogue,
    /// A pointwise convolution that computes the input of this one, which is depthwise. Its
    /// constants are the last operands.
    pub(crate) expansion: Option<Box<Conv>>,
    /// What each channel of each image of the input is multiplied with, `[N, C, 1, ...]`. It is the
    /// last operand. A convolution with a gate is pointwise and has no expansion.
    pub(crate) gate: Option<Slot>,
}

impl Conv {
    /// The weights and what follows them, without those of an expansion.
    fn each_parameter(&self, see: &mut dyn FnMut(Option<Slot>)) {
        see(Some(self.weights));
        self.bias.iter().for_each(|bias| see(Some(*bias)));
        self.epilogue.each_operand(see);
    }

    fn each_parameter_mut(&mut self, see: &mut dyn FnMut(Option<&mut Slot>)) {
        see(Some(&mut self.weights));
        self.bias.iter_mut().for_each(|bias| see(Some(bias)));
        self.epilogue.each_operand_mut(see);
    }

    /// How many operands there are besides the input, those of an expansion and a gate.
    pub(crate) fn own_operands(&self) -> usize {
        1 + usize::from(self.bias.is_some()) + self.epilogue.operand_count()
    }
}

/// The gradient of the weights of a convolution of one group: a sum over all outputs for each tap,
/// input channel and output channel. What a rewrite makes of a convolution between transposes.
#[derive(Debug)]
pub(crate) struct WeightGradient {
    /// The input of the convolution.
    pub(crate) x: Slot,
    /// The gradient of its output.
    pub(crate) dy: Slot,
    /// That of the convolution.
    pub(crate) window: Window,
}

/// Elements added up at indices along an axis: `ScatterElements` with the reduction `add`.
#[derive(Debug)]
pub(crate) struct ScatterAdd {
    pub(crate) elem: DataType,
    pub(crate) data: Slot,
    pub(crate) indices: Slot,
    pub(crate) updates: Slot,
    pub(crate) axis: i64,
}

/// The gradient of the input of a `MaxPool`, image by image: what a rewrite makes of a
/// [`ScatterAdd`] to zeros.
#[derive(Debug)]
pub(crate) struct PoolGradient {
    pub(crate) elem: DataType,
    /// The indices that the pool gives.
    pub(crate) places: Slot,
    /// The gradient of its output, with the images as the first axis.
    pub(crate) dy: Slot,
    /// Elements of an image.
    pub(crate) size: usize,
}

/// Scaled dot-product attention. Its attributes are those of the node.
#[derive(Debug)]
pub(crate) struct Attention {
    pub(crate) operands: Operands,
    /// The order in which the axes of the output are written: of batch, head, row and feature.
    pub(crate) permute: Option<Dims>,
}

/// A function of the elements at the same place of all operands, which broadcast.
#[derive(Debug)]
pub(crate) struct Pointwise {
    /// The type of all operands and of the result.
    pub(crate) elem: DataType,
    /// Each works on what the one before gives; the first works on operand 0.
    pub(crate) links: SmallVec<[Link; 1]>,
    pub(crate) operands: SmallVec<[Slot; 4]>,
}

/// A part of a [`Pointwise`].
#[derive(Debug, Clone)]
pub(crate) enum Link {
    Unary(Unary),
    /// Limits from below and above. What is left out limits nothing.
    Clip(Box<[Option<Tensor>; 2]>),
    Binary {
        op: Binary,
        /// Which side the value so far is.
        side: Side,
        /// The operand that is the other side.
        other: usize,
    },
}

/// A truth value for the elements at the same place of all operands, which broadcast.
#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) test: Test,
    pub(crate) operands: SmallVec<[Slot; 2]>,
}

/// What a [`Truth`] asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Test {
    /// Two elements of a type.
    Compare(Compare, DataType),
    /// Two truth values, whose bytes may be any.
    Logic(Logic),
    /// Whether two truth values are equal.
    Same,
    /// Whether a truth value is false.
    Not,
}

/// Elements of one of two values, which broadcast, as truth values say.
#[derive(Debug)]
pub(crate) struct Select {
    pub(crate) condition: Slot,
    /// Read where the condition holds.
    pub(crate) x: Slot,
    /// Read elsewhere.
    pub(crate) y: Slot,
}

/// Elements converted to another type.
#[derive(Debug)]
pub(crate) struct Cast {
    pub(crate) x: Slot,
    pub(crate) conversion: Conversion,
}

/// From which type to which, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conversion {
    pub(crate) from: DataType,
    pub(crate) to: DataType,
    pub(crate) options: CastOptions,
}

/// A normalization of rows that may add another tensor up first.
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
    /// `LayerNormalization`; the statistics are given in the type `stash`.
    Layer { axis: i64, epsilon: f64, stash: DataType },
    /// `RMSNormalization`.
    RootMeanSquare { axis: i64, epsilon: f64 },
}

/// A factor and a summand for each channel, along the second axis: `BatchNormalization`.
#[derive(Debug)]
pub(crate) struct BatchNorm {
    pub(crate) elem: DataType,
    pub(crate) x: Slot,
    pub(crate) parameters: Parameters,
}

/// The parameters of a [`BatchNorm`].
#[derive(Debug)]
pub(crate) enum Parameters {
    /// Known: what each channel is multiplied with, and what is added then.
    Folded { scale: Arc<[f64]>, shift: Arc<[f64]> },
    /// Scale, bias, mean and variance, as a run finds them.
    Given { slots: [Slot; 4], epsilon: f64 },
}

/// What is added to the first operand before it is normalized.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Residual {
    pub(crate) with: Slot,
    /// The output that is the sum, if anything reads that.
    pub(crate) sum: usize,
}

/// Elements of the first operand in another place, order or shape.
#[derive(Debug)]
pub(crate) struct Move {
    pub(crate) kind: MoveKind,
    /// The first is moved; what the others are depends on the kind.
    pub(crate) operands: Operands,
}

/// One element in all places of a shape that an operand says.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) one: Tensor,
    pub(crate) shape: Slot,
}

/// The same value in the other order.
#[derive(Debug)]
pub(crate) struct Reorder {
    pub(crate) x: Slot,
}

/// An operator that no rewrite looks into: the node has its attributes.
#[derive(Debug)]
pub(crate) struct Opaque {
    pub(crate) operands: Operands,
    /// What its kernel makes of images whose channels come last.
    pub(crate) images: Images,
}

/// What the kernel of an opaque operator makes of images of floats whose channels come last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Images {
    /// It reads and writes rows.
    Rows,
    /// The first operand and the result have one order. So many times as many elements as there
    /// are could be moved in the time that channels first take longer.
    Alike { gain: u64 },
    /// The same for windows, which gain a pass over the elements. Results of one pixel lie in both
    /// orders, and leave the choice to the operand.
    Windows,
    /// The first operand may have either order; results are in rows.
    Read,
}

/// What a step reads; `None` for an operand that is left out.
pub(crate) type Operands = SmallVec<[Option<Slot>; 6]>;

/// What happens to a result before it is written, in order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Epilogue(pub(crate) SmallVec<[Stage; 2]>);

/// A part of an [`Epilogue`].
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Stage {
    /// Multiplies with numbers along an axis. A product has one number; what a convolution has is
    /// multiplied into its weights.
    Scale { by: Numbers, axis: usize },
    /// Adds numbers along an axis: the last one of a product, the channels of a convolution.
    Bias { by: Numbers, axis: usize },
    /// Adds a tensor of the same shape.
    Add(Slot),
    /// Applies a function to each element.
    Activation(Activation),
    /// Multiplies with a tensor of the same shape.
    Mul(Slot),
}

/// One number for each index of an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Numbers {
    /// The same for all.
    One(f32),
    /// The elements of a value, in order.
    Value(Slot),
    /// Known since the program was made.
    Known(Arc<[f64]>),
}

impl Numbers {
    /// The value that they are, if they are one.
    pub(crate) fn slot(&self) -> Option<Slot> {
        match self {
            Numbers::Value(slot) => Some(*slot),
            Numbers::One(_) | Numbers::Known(_) => None,
        }
    }
}

impl Stage {
    /// What it reads besides the result.
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
    pub(crate) fn is_of_every_element(&self) -> bool {
        matches!(self, Stage::Add(_) | Stage::Mul(_))
    }
}

impl Epilogue {
    /// What the stages read, in order.
    fn each_operand(&self, mut see: impl FnMut(Option<Slot>)) {
        for slot in self.0.iter().filter_map(Stage::operand) {
            see(Some(slot));
        }
    }

    fn each_operand_mut(&mut self, mut see: impl FnMut(Option<&mut Slot>)) {
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
    /// Why it comes too late for the order in which kernels do them, or that there is one of its
    /// kind already.
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

    /// How many operands the stages have.
    pub(crate) fn operand_count(&self) -> usize {
        self.0.iter().filter(|stage| stage.operand().is_some()).count()
    }

    /// What is added along the axis, in order.
    pub(crate) fn biases(&self) -> impl Iterator<Item = &Numbers> {
        self.0.iter().filter_map(|stage| match stage {
            Stage::Bias { by, .. } => Some(by),
            _ => None,
        })
    }
}

impl Op {
    /// What it reads, in the order in which the kernel finds it.
    pub(crate) fn operands(&self) -> Operands {
        let mut operands = Operands::new();
        self.each_operand(|operand| operands.push(operand));
        operands
    }

    /// The same without a list.
    pub(crate) fn each_operand(&self, mut see: impl FnMut(Option<Slot>)) {
        let own: &[Option<Slot>] = match self {
            Op::Product(product) => {
                see(Some(product.a));
                see(Some(product.b));
                let zero_points = [product.a_zero_point, product.b_zero_point];
                if zero_points.iter().any(Option::is_some) {
                    zero_points.into_iter().for_each(&mut see);
                }
                product.addend.iter().for_each(|addend| see(Some(addend.c)));
                return product.epilogue.each_operand(see);
            }
            Op::Conv(conv) => {
                see(Some(conv.expansion.as_ref().map_or(conv.x, |expansion| expansion.x)));
                conv.each_parameter(&mut see);
                conv.expansion.iter().for_each(|first| first.each_parameter(&mut see));
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
                region.kind.each_operand(&mut see);
                return region.captures.iter().for_each(|slot| see(Some(*slot)));
            }
            Op::Attention(attention) => &attention.operands,
            Op::Move(moved) => &moved.operands,
            Op::Opaque(opaque) => &opaque.operands,
        };
        own.iter().for_each(|operand| see(*operand));
    }

    /// Lets operands be changed, in the order of [`Op::each_operand`].
    pub(crate) fn each_operand_mut(&mut self, mut see: impl FnMut(Option<&mut Slot>)) {
        let own: &mut [Option<Slot>] = match self {
            Op::Product(product) => {
                see(Some(&mut product.a));
                see(Some(&mut product.b));
                if product.a_zero_point.is_some() || product.b_zero_point.is_some() {
                    see(product.a_zero_point.as_mut());
                    see(product.b_zero_point.as_mut());
                }
                product.addend.iter_mut().for_each(|addend| see(Some(&mut addend.c)));
                return product.epilogue.each_operand_mut(see);
            }
            Op::Conv(conv) => {
                see(Some(match &mut conv.expansion {
                    Some(expansion) => &mut expansion.x,
                    None => &mut conv.x,
                }));
                conv.each_parameter_mut(&mut see);
                let expansion = conv.expansion.iter_mut();
                expansion.for_each(|first| first.each_parameter_mut(&mut see));
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
                region.kind.each_operand_mut(&mut see);
                return region.captures.iter_mut().for_each(|slot| see(Some(slot)));
            }
            Op::Attention(attention) => &mut attention.operands,
            Op::Move(moved) => &mut moved.operands,
            Op::Opaque(opaque) => &mut opaque.operands,
        };
        own.iter_mut().for_each(|operand| see(operand.as_mut()));
    }

    /// The one element that all places of the result have, if that is known; `first` is such an
    /// element of the first operand.
    pub(crate) fn fill<'t>(&'t self, first: Option<&'t Tensor>) -> Option<&'t Tensor> {
        match self {
            Op::Move(moved) if moved.kind.keeps_fills() => first,
            Op::Fill(fill) => Some(&fill.one),
            _ => None,
        }
    }
}

impl Step {
    /// The programs of inner graphs.
    pub(crate) fn bodies(&self) -> &[Program] {
        match &self.op {
            Op::Region(region) => &region.bodies,
            _ => &[],
        }
    }
}

impl Program {
    /// Returns the program, its end and the programs in its steps, each before those in it.
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

    /// Returns the step that gives each slot.
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

    /// The shape of a tensor, as far as inferred.
    pub(crate) fn shape(&self, slot: Slot) -> Option<&Shape> {
        self.value(slot).ty.as_ref()?.shape()
    }

    /// The element type of a tensor, if inferred.
    pub(crate) fn elem(&self, slot: Slot) -> Option<DataType> {
        self.value(slot).ty.as_ref()?.elem()
    }

    /// The value itself, if it is a constant of few elements.
    pub(crate) fn small(&self, slot: Slot) -> Option<&Tensor> {
        match &self.value(slot).constant {
            Some(Constant::Small(tensor)) => Some(tensor),
            _ => None,
        }
    }

    /// Whether what a convolution multiplies its channels with, and adds to them, is what one
    /// factor in the weights and one bias can be.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(crate) fn check_channels(&self, conv: &Conv) -> Result<(), &'static str> {
        let channels = self.shape(conv.weights).and_then(|shape| shape.first()?.size());
        // Of each summand so far: whether it is constant.
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

    /// Whether numbers are finite, as far as they are known here. Infinite ones multiplied into
    /// weights would make NaN of sums.
    fn may_be_finite(&self, numbers: &Numbers) -> bool {
        match numbers {
            Numbers::One(number) => number.is_finite(),
            Numbers::Known(numbers) => numbers.iter().all(|number| number.is_finite()),
            Numbers::Value(slot) => {
                let elements = self.small(*slot).and_then(|small| small.to_vec::<f32>().ok());
                elements.unwrap_or_default().into_iter().all(f32::is_finite)
            }
        }
    }

    /// Whether numbers are known before anything runs.
    pub(crate) fn are_constant(&self, numbers: &Numbers) -> bool {
        numbers.slot().is_none_or(|slot| self.is_constant(slot))
    }

    /// Whether a value is known before anything runs.
    pub(crate) fn is_constant(&self, slot: Slot) -> bool {
        self.value(slot).constant.is_some()
    }
}

impl Program {
    /// The multiply-adds of products with constant matrices, also in inner graphs.
    pub(crate) fn constant_products(&self) -> Vec<usize> {
        let product = |program: &Program, step: &Step| {
            let Op::Product(product) = &step.op else { return None };
            let shape = program.shape(product.b).filter(|_| program.is_constant(product.b))?;
            let [rows, cols] = &shape[..] else { return None };
            let (rows, cols) = (rows.size()?, cols.size()?);
            let sizes = if product.trans_b { [cols, rows] } else { [rows, cols] };
            Some(multiply_adds(program.shape(product.a), sizes))
        };
        let programs = self.tree().into_iter();
        let steps = programs.flat_map(|within| within.steps.iter().map(move |step| (within, step)));
        steps.filter_map(|(within, step)| product(within, step)).collect()
    }
}

/// Whether a shape that broadcasts to another is that of a vector along one axis of it.
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

/// Whether two shapes are the same for all sizes of the inputs.
pub(crate) fn same_shape(a: &Shape, b: &Shape) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.surely_equals(b))
}
