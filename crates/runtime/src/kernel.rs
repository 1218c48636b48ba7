//! Interface of kernels: [`Site`] to bind a node, [`Call`] to run it.

mod target;

use std::borrow::Cow;
use std::fmt;
use std::mem::take;
use std::sync::Arc;

use bytemuck::Pod;
use sardonyx_kernels::conv::{Order, Ordered, OrderedMut};
use sardonyx_kernels::gemm::{Activation, Bias, Epilogue};
use sardonyx_kernels::number::Number;
use sardonyx_kernels::pixels::{Pixels, PixelsMut};
use sardonyx_kernels::{Exec, Isa, scratch_bytes};
use sardonyx_model::{Shape, Type};
use sardonyx_ops::AttributeView;
use sardonyx_tensor::{DataType, Dims, Element, Recycler, Tensor, Value, emptied};
use sardonyx_tensor::{TensorView, TensorViewMut};
use smallvec::SmallVec;

use crate::account::Account;
use crate::error::{BindError, KernelError, fail};
use crate::images::ImageDecoder;
use crate::layout::{Layout, pitch_of_strides};
use crate::precision::Precision;
use crate::program::{self, Numbers, Operands, Slot, Stage};
use crate::random::Draws;
use crate::registers::ScalarCode;
use crate::scratch::Scratch;
use crate::weights::{Packer, Weight};

use target::memory_of;
pub(crate) use target::{MemorySource, OutputLayout, Target, describe_value};

/// Compiled step.
pub(crate) trait Kernel: Send + Sync {
    /// Computes the outputs.
    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError>;

    /// Returns the rules for the memory of its operands and outputs.
    fn memory(&self) -> MemoryRules {
        MemoryRules::default()
    }

    /// Returns the instructions of a step that computes scalar functions.
    fn scalars(&self) -> Option<&ScalarCode> {
        None
    }

    /// Names the loops that will run, for profiles and `explain`.
    fn describe(&self) -> String {
        String::new()
    }
}

/// Kernel, and the operands that it has packed and no longer reads.
pub(crate) struct Selected {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) packed: SmallVec<[usize; 4]>,
}

impl Selected {
    pub(crate) fn new(kernel: impl Kernel + 'static) -> Selected {
        Selected { kernel: Box::new(kernel), packed: SmallVec::new() }
    }

    /// Adds operands to those that the kernel has packed.
    pub(crate) fn with_packed(mut self, positions: impl IntoIterator<Item = usize>) -> Selected {
        self.packed.extend(positions);
        self
    }
}

impl From<Box<dyn Kernel>> for Selected {
    fn from(kernel: Box<dyn Kernel>) -> Selected {
        Selected { kernel, packed: SmallVec::new() }
    }
}

/// Rules for the memory that a kernel works on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MemoryRules {
    /// Inputs whose memory the first output may reuse after their last reader. The kernel calls
    /// [`Call::in_place`] first.
    pub(crate) in_place: &'static [usize],
    /// Inputs that may have any strides. All others are dense, or in the order that the program
    /// assigns.
    pub(crate) strided: Inputs,
    /// Inputs whose rows along the last axis may have a pitch.
    pub(crate) pitched: Inputs,
    /// Inputs that need no alignment: their elements are moved as bytes.
    pub(crate) unaligned: Inputs,
    /// Inputs that the kernel takes over after their last reader, by [`Call::take`].
    pub(crate) takes: Inputs,
}

/// Set of input positions of a kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Inputs(u64);

impl Inputs {
    pub(crate) const ALL: Inputs = Inputs(u64::MAX);

    /// Makes the set of some positions below 63.
    pub(crate) const fn from_positions(positions: &[usize]) -> Inputs {
        let (mut set, mut index) = (0, 0);
        while index < positions.len() {
            set |= 1 << positions[index];
            index += 1;
        }
        Inputs(set)
    }

    /// Makes the set of a range of positions. Positions from 63 on are all in or all out: out.
    pub(crate) fn from_range(positions: std::ops::Range<usize>) -> Inputs {
        let positions = positions.start.min(63)..positions.end.min(63);
        Inputs(positions.fold(0, |set, position| set | 1 << position))
    }

    /// Whether the set has a position. The last bit stands for all positions from 63 on.
    pub(crate) fn contains(self, position: usize) -> bool {
        self.0 >> position.min(63) & 1 == 1
    }
}

/// Operands of the epilogue of a product or a convolution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ending {
    pub(crate) scale: f32,
    /// Position of the operand.
    pub(crate) bias: Option<usize>,
    pub(crate) residual: Option<usize>,
    pub(crate) activation: Activation,
    pub(crate) factor: Option<usize>,
}

impl Ending {
    /// Assigns positions from `position` on to the operands of an epilogue.
    pub(crate) fn new(epilogue: &program::Epilogue, mut position: usize) -> Ending {
        let mut ending = Ending {
            scale: 1.0,
            bias: None,
            residual: None,
            activation: Activation::None,
            factor: None,
        };
        for stage in &epilogue.0 {
            match stage {
                Stage::Scale { by: Numbers::One(by), .. } => ending.scale *= by,
                Stage::Bias { by: Numbers::Value(_), .. } => ending.bias = Some(position),
                // Only convolutions have other scales and biases, and fold them into weights when
                // they are compiled.
                Stage::Scale { .. } | Stage::Bias { .. } => {}
                Stage::Add(_) => ending.residual = Some(position),
                Stage::Mul(_) => ending.factor = Some(position),
                Stage::Activation(activation) => ending.activation = *activation,
            }
            position += usize::from(stage.operand().is_some());
        }
        ending
    }

    /// Builds the epilogue of a product or a convolution with `elems` results. A bias has one
    /// number for each of `along` rows or columns.
    pub(crate) fn epilogue<'a>(
        &self,
        call: &Call<'a>,
        elems: usize,
        along: usize,
        bias: fn(&'a [f32]) -> Bias<'a>,
    ) -> Result<Epilogue<'a>, KernelError> {
        let slice = |position: Option<usize>, len: usize| {
            let Some(position) = position else {
                return Ok(None);
            };
            let slice = call.slice::<f32>(position)?;
            if slice.len() != len {
                let dims = call.tensor(position)?.dims();
                fail!("input {position} is {dims:?}, {len} elements were declared");
            }
            Ok::<_, KernelError>(Some(slice))
        };
        Ok(Epilogue {
            alpha: self.scale,
            bias: slice(self.bias, along)?.map(bias),
            residual: slice(self.residual, elems)?,
            activation: self.activation,
            factor: slice(self.factor, elems)?,
            ..Epilogue::default()
        })
    }
}

/// Step of a program, or node that becomes one, with types and constants of its operands.
pub(crate) struct Site<'a> {
    pub(crate) attributes: AttributeView<'a>,
    /// Type of each operand, and its value if it is constant. `None` for an omitted operand.
    pub(crate) inputs: SmallVec<[Option<SiteInput<'a>>; 6]>,
    /// Whether each output has a reader.
    pub(crate) outputs: SmallVec<[bool; 8]>,
    /// Rank of the first output, if known.
    pub(crate) rank: Option<usize>,
    pub(crate) isa: Isa,
    pub(crate) precision: Precision,
    /// Multiply-adds up to which products are exact in any precision.
    pub(crate) exact_up_to: usize,
    pub(crate) weights: &'a Packer<'a>,
    /// Decoder of images, if the program supplied one.
    pub(crate) images: Option<&'a Arc<dyn ImageDecoder>>,
    pub(crate) orders: SiteOrders,
}

/// Orders of the values of a step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SiteOrders {
    /// Order in which the first operand is given.
    pub(crate) input: program::Order,
    /// Order in which the first output is wanted.
    pub(crate) output: program::Order,
}

/// Operand of a step.
pub(crate) struct SiteInput<'a> {
    pub(crate) slot: Slot,
    pub(crate) ty: Option<Cow<'a, Type>>,
    /// Value of a materialized constant.
    pub(crate) constant: Option<&'a Tensor>,
    /// Constant that can be packed instead of the input.
    pub(crate) weight: Option<Weight<'a>>,
}

impl<'a> Site<'a> {
    /// Whether the input is given.
    pub(crate) fn has_input(&self, index: usize) -> bool {
        self.inputs.get(index).is_some_and(Option::is_some)
    }

    /// Whether the output may have a reader.
    pub(crate) fn has_output(&self, index: usize) -> bool {
        self.outputs.get(index).copied().unwrap_or(false)
    }

    /// Returns the slot of a required input.
    pub(crate) fn slot(&self, index: usize) -> Result<Slot, BindError> {
        let input = self.inputs.get(index).and_then(Option::as_ref);
        let input = input.map(|input| input.slot);
        input.ok_or_else(|| BindError::Invalid(format!("input {index} is missing")))
    }

    /// Returns the slots of all operands, by position.
    pub(crate) fn operands(&self) -> Operands {
        self.inputs.iter().map(|input| input.as_ref().map(|input| input.slot)).collect()
    }

    /// Returns the constant at an input.
    pub(crate) fn constant(&self, index: usize) -> Option<&'a Tensor> {
        self.inputs.get(index)?.as_ref()?.constant
    }

    /// Returns the constant that can be packed instead of an input.
    pub(crate) fn weight(&self, index: usize) -> Option<Weight<'a>> {
        self.inputs.get(index)?.as_ref()?.weight
    }

    /// Returns the inferred shape of an input.
    pub(crate) fn shape(&self, index: usize) -> Option<&Shape> {
        self.inputs.get(index)?.as_ref()?.ty.as_deref()?.shape()
    }

    /// Returns the element type of an input.
    pub(crate) fn elem(&self, index: usize) -> Result<DataType, BindError> {
        let input = self.inputs.get(index).and_then(Option::as_ref);
        match input.and_then(|input| input.ty.as_deref()) {
            Some(Type::Tensor(tensor)) => tensor.elem.ok_or_else(|| {
                BindError::Unsupported(format!("the element type of input {index} is unknown"))
            }),
            Some(other) => Err(BindError::Unsupported(format!("type not implemented: {other}"))),
            None => Err(BindError::Unsupported(format!("the type of input {index} is unknown"))),
        }
    }

    /// Returns an integer attribute or its default.
    pub(crate) fn int(&self, name: &str) -> Option<i64> {
        self.attributes.int(name)
    }

    /// Returns a required integer attribute.
    pub(crate) fn need_int(&self, name: &str) -> Result<i64, BindError> {
        self.int(name).ok_or_else(|| BindError::Invalid(format!("attribute '{name}' is missing")))
    }

    /// Returns a float attribute or its default.
    pub(crate) fn float(&self, name: &str) -> Option<f32> {
        self.attributes.float(name)
    }

    /// Returns an attribute of integers or its default.
    pub(crate) fn ints(&self, name: &str) -> Option<Vec<i64>> {
        self.attributes.ints(name)
    }

    /// Returns a string attribute or its default.
    pub(crate) fn string(&self, name: &str) -> Option<String> {
        self.attributes.string(name)
    }

    /// Returns the bytes of a string attribute, which need not be UTF-8.
    pub(crate) fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        self.attributes.bytes(name)
    }

    /// Looks up the value of a string attribute in a list of allowed ones.
    pub(crate) fn find_named<T: Copy>(
        &self,
        name: &str,
        list: &[(&str, T)],
    ) -> Result<T, BindError> {
        let word = self.bytes(name).unwrap_or_default();
        match list.iter().find(|(known, _)| known.as_bytes() == word) {
            Some((_, value)) => Ok(*value),
            None => {
                let words: Vec<&str> = list.iter().map(|(word, _)| *word).collect();
                let word = String::from_utf8_lossy(&word);
                fail!("attribute '{name}' is '{word}', which is not one of {}", words.join(", "))
            }
        }
    }

    /// Returns the error for an element type without a loop.
    pub(crate) fn unsupported_type<T>(&self, elem: DataType) -> Result<T, BindError> {
        Err(BindError::Unsupported(format!("type not implemented: {}", elem.name())))
    }
}

/// Operand of a node during a run.
pub(crate) enum Operand<'a> {
    /// Tensor.
    Tensor(TensorView<'a>),
    /// Value that is not a tensor.
    Value(&'a Value),
    /// Value without other readers, taken over by the kernel: see [`Call::take`].
    Taken(Value),
    /// Shares the memory of the first output: see [`Call::in_place`]. An old value that is
    /// overwritten shares the memory of its new value.
    InPlace,
    /// Tensor of these dimensions that already lies in its part of the first output. Only
    /// concatenations see it.
    There(&'a Dims),
    /// Omitted input.
    Absent,
}

/// Lists of a call, empty between steps, so that a step does not allocate them. In the call itself
/// they would take two kilobytes, which are copied when it is made.
#[derive(Default)]
pub(crate) struct CallLists {
    operands: Vec<Operand<'static>>,
    targets: Vec<Target<'static>>,
}

impl CallLists {
    /// Takes the lists for a call.
    #[inline]
    pub(crate) fn take<'a>(&mut self) -> (Vec<Operand<'a>>, Vec<Target<'a>>) {
        (emptied(take(&mut self.operands)), emptied(take(&mut self.targets)))
    }

    /// Keeps the lists of a call for the next one.
    #[inline]
    pub(crate) fn keep(&mut self, operands: Vec<Operand<'_>>, targets: Vec<Target<'_>>) {
        (self.operands, self.targets) = (emptied(operands), emptied(targets));
    }
}

impl fmt::Debug for CallLists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLists").finish_non_exhaustive()
    }
}

/// Run of one node.
pub(crate) struct Call<'a> {
    pub(crate) operands: Vec<Operand<'a>>,
    pub(crate) targets: Vec<Target<'a>>,
    /// Index of the input that shares the memory of the first output.
    pub(crate) over: Option<usize>,
    pub(crate) exec: &'a Exec<'a>,
    /// Source of random numbers.
    pub(crate) random: Draws<'a>,
    /// Source of memory for outputs without a place in the plan.
    pub(crate) memory: Option<&'a Arc<Recycler>>,
    /// Account that is charged before memory is allocated.
    pub(crate) account: &'a Account,
}

impl<'a> Call<'a> {
    /// Returns the number of inputs, omitted ones included.
    pub(crate) fn input_count(&self) -> usize {
        self.operands.len()
    }

    /// Whether an input is given.
    pub(crate) fn has_input(&self, index: usize) -> bool {
        !matches!(self.operands.get(index), None | Some(Operand::Absent))
    }

    /// Whether an output has a reader.
    pub(crate) fn has_output(&self, index: usize) -> bool {
        !matches!(self.targets.get(index), None | Some(Target::Absent))
    }

    /// Returns an input that is not a tensor.
    pub(crate) fn value(&self, index: usize) -> Option<&Value> {
        match self.operands.get(index) {
            Some(Operand::Value(value)) => Some(value),
            Some(Operand::Taken(value)) => Some(value),
            _ => None,
        }
    }

    /// Takes over an input: moves the value if it has no other readers and [`MemoryRules::takes`]
    /// has the input, else copies it. Its bytes are charged once it is an output.
    pub(crate) fn take(&mut self, index: usize) -> Result<Value, KernelError> {
        let Some(operand) = self.operands.get_mut(index) else {
            fail!("input {index} is missing");
        };
        match std::mem::replace(operand, Operand::Absent) {
            Operand::Taken(value) => Ok(value),
            Operand::Value(value) => {
                let bytes = value.bytes();
                self.account.charge(bytes)?;
                let copy = value.clone();
                self.account.credit(bytes);
                Ok(copy)
            }
            Operand::Tensor(view) => {
                let bytes = view.data_type().storage_bytes(view.len()).unwrap_or(0);
                self.account.charge(bytes)?;
                let copy = view.to_tensor()?;
                self.account.credit(bytes);
                Ok(Value::Tensor(copy))
            }
            Operand::InPlace => fail!("input {index} is being overwritten"),
            Operand::There(_) => fail!("input {index} is a part of the output"),
            Operand::Absent => fail!("input {index} is missing"),
        }
    }

    /// Returns a tensor input.
    pub(crate) fn tensor(&self, index: usize) -> Result<&TensorView<'a>, KernelError> {
        tensor_of(&self.operands, index)
    }

    /// Returns a tensor input that may be omitted.
    pub(crate) fn maybe_tensor(
        &self,
        index: usize,
    ) -> Result<Option<&TensorView<'a>>, KernelError> {
        if self.has_input(index) { self.tensor(index).map(Some) } else { Ok(None) }
    }

    /// Returns the elements of a tensor input in row-major order.
    pub(crate) fn slice<T: Element>(&self, index: usize) -> Result<&'a [T], KernelError> {
        Ok(self.tensor(index)?.as_slice::<T>()?)
    }

    /// Returns the elements that a strided tensor input covers, from its first one on.
    pub(crate) fn strided_slice<T: Element>(&self, index: usize) -> Result<&'a [T], KernelError> {
        let view = self.tensor(index)?;
        Ok(view.data_slice::<T>()?.get(view.offset()..).unwrap_or_default())
    }

    /// Returns the elements of a tensor input that may be omitted.
    pub(crate) fn maybe_slice<T: Element>(
        &self,
        index: usize,
    ) -> Result<Option<&'a [T]>, KernelError> {
        if self.has_input(index) { self.slice(index).map(Some) } else { Ok(None) }
    }

    /// Returns an image of floats, in rows or with channels last.
    pub(crate) fn image(&self, index: usize) -> Result<Ordered<'a>, KernelError> {
        let view = self.tensor(index)?;
        match self.channels_last(index)? {
            Some(image) if !view.is_contiguous() => Ok(image),
            _ => Ok(Ordered { data: view.as_slice::<f32>()?, order: Order::Rows }),
        }
    }

    /// Returns an image of floats with channels last; `None` if it is in rows only. Images of one
    /// pixel and empty ones may be both.
    pub(crate) fn channels_last(&self, index: usize) -> Result<Option<Ordered<'a>>, KernelError> {
        let view = self.tensor(index)?;
        let dims = view.dims();
        if view.is_empty() {
            let order = Order::ChannelsLast { pitch: dims[1] };
            return Ok(Some(Ordered { data: &[], order }));
        }
        let Some(pitch) = pitch_of_strides(dims, &view.strides()) else {
            if view.is_contiguous() {
                return Ok(None);
            }
            fail!("input {index} is neither in rows nor has its channels last");
        };
        let data = view.data_slice::<f32>()?.get(view.offset()..).unwrap_or_default();
        Ok(Some(Ordered { data, order: Order::ChannelsLast { pitch } }))
    }

    /// Returns an image of floats with channels last as pixels.
    pub(crate) fn pixels(&self, index: usize) -> Result<Option<Pixels<'a>>, KernelError> {
        let Some(Ordered { data, order: Order::ChannelsLast { pitch } }) =
            self.channels_last(index)?
        else {
            return Ok(None);
        };
        let dims = self.tensor(index)?.dims();
        let count = dims[0] * dims[2..].iter().product::<usize>();
        Ok(Some(Pixels::new(data, count, dims[1], pitch)))
    }

    /// Returns the memory of an output image of floats with channels last.
    pub(crate) fn output_pixels(
        &mut self,
        index: usize,
        dims: &[usize],
    ) -> Result<PixelsMut<'_>, KernelError> {
        let OrderedMut { data, order: Order::ChannelsLast { pitch } } =
            self.output_image(index, dims)?
        else {
            fail!("output {index} is in rows");
        };
        let count = dims[0] * dims[2..].iter().product::<usize>();
        Ok(PixelsMut::new(data, count, dims[1], pitch))
    }

    /// Returns the memory of an output image of floats, in rows or with channels last.
    pub(crate) fn output_image(
        &mut self,
        index: usize,
        dims: &[usize],
    ) -> Result<OrderedMut<'_>, KernelError> {
        if let Some(Target::Planned { laid: Some(_), .. }) = self.targets.get(index) {
            let (data, layout) = self.output_with_layout(index, DataType::Float, dims)?;
            let Some(pitch) = layout.pitch(dims) else {
                fail!("output {index} is neither in rows nor has its channels last");
            };
            let (data, offset) = (bytemuck::try_cast_slice_mut::<u8, f32>(data), layout.offset);
            let data = data.ok().and_then(|data| data.get_mut(offset..)).unwrap_or_default();
            return Ok(OrderedMut { data, order: Order::ChannelsLast { pitch } });
        }
        let data = self.output_slice::<f32>(index, dims)?;
        Ok(OrderedMut { data, order: Order::Rows })
    }

    /// Whether an output is not in rows.
    pub(crate) fn has_layout(&self, index: usize) -> bool {
        matches!(self.targets.get(index), Some(Target::Planned { laid: Some(_), .. }))
    }

    /// Returns the memory and the layout of an output that is not in rows.
    pub(crate) fn output_with_layout(
        &mut self,
        index: usize,
        data_type: DataType,
        dims: &[usize],
    ) -> Result<(&mut [u8], &'a Layout), KernelError> {
        match self.targets.get_mut(index) {
            Some(Target::Planned {
                data_type: planned,
                dims: planned_dims,
                bytes,
                laid: Some(laid),
            }) if *planned == data_type && planned_dims[..] == *dims => Ok((bytes, laid.layout)),
            Some(Target::Planned { data_type: planned, dims: planned_dims, .. }) => fail!(
                "output {index} is {}{dims:?}, but {}{:?} was inferred",
                data_type.name(),
                planned.name(),
                &planned_dims[..]
            ),
            _ => fail!("output {index} is in rows"),
        }
    }

    /// Returns the integers of an `int64` or `int32` tensor input.
    pub(crate) fn ints(&self, index: usize) -> Result<SmallVec<[i64; 8]>, KernelError> {
        let view = self.tensor(index)?;
        match view.data_type() {
            DataType::Int64 => Ok(view.as_slice::<i64>()?.iter().copied().collect()),
            DataType::Int32 => {
                Ok(view.as_slice::<i32>()?.iter().map(|value| i64::from(*value)).collect())
            }
            other => fail!("input {index} has type {}, not int64 or int32", other.name()),
        }
    }

    /// Returns the first output and the index of the input that shares its memory, if one does.
    pub(crate) fn in_place<T: Element>(
        &mut self,
    ) -> Result<Option<(usize, &mut [T])>, KernelError> {
        let Some(over) = self.over else {
            return Ok(None);
        };
        let Some(Target::Planned { data_type, dims, bytes, laid: None }) = self.targets.first_mut()
        else {
            fail!("the output in place is not in rows");
        };
        let view = TensorViewMut::over(*data_type, dims, bytes)?;
        Ok(Some((over, into_slice(view)?)))
    }

    /// Returns the memory of an output of that type and shape. An output without a reader is
    /// dropped after the call.
    pub(crate) fn output(
        &mut self,
        index: usize,
        data_type: DataType,
        dims: &[usize],
    ) -> Result<TensorViewMut<'_>, KernelError> {
        let source = self.memory_source();
        memory_of(self.targets.get_mut(index), index, source, data_type, dims)
    }

    /// Allocates a tensor that becomes part of an output. Its bytes stay charged until
    /// [`Call::uncount`].
    pub(crate) fn new_tensor(
        &self,
        data_type: DataType,
        dims: &[usize],
    ) -> Result<Tensor, KernelError> {
        self.memory_source().tensor(data_type, dims)
    }

    /// Allocates an uninitialized tensor for the time of the call, and charges it.
    pub(crate) fn scratch_tensor(
        &self,
        data_type: DataType,
        dims: &[usize],
    ) -> Result<Tensor, KernelError> {
        self.memory_source().scratch(data_type, dims)
    }

    /// Credits bytes charged for parts of an output, which is charged as a whole once it is set.
    pub(crate) fn uncount(&self, bytes: usize) {
        self.account.credit(bytes);
    }

    fn memory_source(&self) -> MemorySource<'a> {
        MemorySource { recycler: self.memory, account: self.account }
    }

    /// Charges memory that the call is about to allocate.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), KernelError> {
        Ok(self.account.charge(bytes)?)
    }

    /// Counts memory that loops of `T` take to widen slices, one by one, of so many elements of
    /// inputs and outputs.
    pub(crate) fn reserve_slices<T: Number>(&self, elements: usize) -> Result<(), KernelError> {
        self.reserve(scratch_bytes::<T>(elements))
    }

    /// Allocates zeros for the time of the call.
    pub(crate) fn scratch<T: Pod>(&self, len: usize) -> Result<Scratch<T>, KernelError> {
        self.reserve(len.saturating_mul(size_of::<T>()))?;
        Ok(Scratch::zeros(len)?)
    }

    /// Allocates elements for the time of the call. Their content is undefined until the caller
    /// writes them.
    pub(crate) fn scratch_uninit<T: Pod>(&self, len: usize) -> Result<Scratch<T>, KernelError> {
        self.reserve(len.saturating_mul(size_of::<T>()))?;
        Ok(Scratch::uninit(len)?)
    }

    /// Returns the elements of the first output and, if it has a reader, of output `index` of the
    /// same shape.
    pub(crate) fn output_slices<T: Element, O: Element>(
        &mut self,
        index: usize,
        dims: &[usize],
    ) -> Result<(&mut [T], Option<&mut [O]>), KernelError> {
        let Some((first, others)) = self.targets.split_first_mut() else {
            fail!("output 0 is not requested");
        };
        let source = MemorySource { recycler: self.memory, account: self.account };
        let first = memory_of(Some(first), 0, source, T::DATA_TYPE, dims)?;
        let other = match others.get_mut(index - 1) {
            None | Some(Target::Absent) => None,
            other => {
                let view = memory_of(other, index, source, O::DATA_TYPE, dims)?;
                Some(into_slice(view)?)
            }
        };
        Ok((into_slice(first)?, other))
    }

    /// Returns the elements of several outputs of one shape, by index; `None` for outputs without a
    /// reader.
    pub(crate) fn output_slices_at<T: Element, const N: usize>(
        &mut self,
        indices: [usize; N],
        dims: &[usize],
    ) -> Result<[Option<&mut [T]>; N], KernelError> {
        let source = self.memory_source();
        let mut slices = [const { None }; N];
        for (number, target) in self.targets.iter_mut().enumerate() {
            let found = indices.iter().position(|index| *index == number);
            let (Some(found), false) = (found, matches!(target, Target::Absent)) else {
                continue;
            };
            let view = memory_of(Some(target), number, source, T::DATA_TYPE, dims)?;
            slices[found] = Some(into_slice(view)?);
        }
        Ok(slices)
    }

    /// Returns the elements of the first output, which has the shape of the first input.
    pub(crate) fn output_like<T: Element>(&mut self) -> Result<&mut [T], KernelError> {
        let source = self.memory_source();
        let dims = tensor_of(&self.operands, 0)?.dims();
        into_slice(memory_of(self.targets.first_mut(), 0, source, T::DATA_TYPE, dims)?)
    }

    /// Returns the elements of an output of that shape.
    pub(crate) fn output_slice<T: Element>(
        &mut self,
        index: usize,
        dims: &[usize],
    ) -> Result<&mut [T], KernelError> {
        into_slice(self.output(index, T::DATA_TYPE, dims)?)
    }

    /// Sets an output to a value: strings, sequences, or any value without a place in the plan.
    pub(crate) fn set_output(&mut self, index: usize, value: Value) -> Result<(), KernelError> {
        match self.targets.get_mut(index) {
            Some(Target::Owned(slot)) => {
                self.account.charge(value.bytes())?;
                *slot = Some(value);
                Ok(())
            }
            Some(Target::Planned { laid: Some(_), .. }) => {
                fail!("output {index} has its channels last, which this kernel does not write")
            }
            Some(Target::Planned { data_type, dims, bytes, laid: None }) => match value {
                Value::Tensor(tensor)
                    if tensor.data_type() == *data_type && tensor.dims() == &dims[..] =>
                {
                    bytes.copy_from_slice(tensor.bytes());
                    Ok(())
                }
                other => fail!(
                    "output {index} is {}, but {}{:?} was inferred",
                    describe_value(&other),
                    data_type.name(),
                    &dims[..]
                ),
            },
            Some(Target::Absent) | None => Ok(()),
        }
    }
}

/// Returns the tensor at an index of a list of operands.
fn tensor_of<'o, 'a>(
    operands: &'o [Operand<'a>],
    index: usize,
) -> Result<&'o TensorView<'a>, KernelError> {
    match operands.get(index) {
        Some(Operand::Tensor(view)) => Ok(view),
        Some(Operand::Value(value)) => {
            fail!("input {index} is {}, not a tensor", value.value_type())
        }
        Some(Operand::Taken(value)) => {
            fail!("input {index} is {}, which must be taken instead of read", value.value_type())
        }
        Some(Operand::InPlace) => fail!("input {index} is being overwritten"),
        Some(Operand::There(_)) => fail!("input {index} is a part of the output"),
        Some(Operand::Absent) | None => fail!("input {index} is missing"),
    }
}

fn into_slice<'a, T: Element>(view: TensorViewMut<'a>) -> Result<&'a mut [T], KernelError> {
    Ok(view.into_slice::<T>()?)
}
