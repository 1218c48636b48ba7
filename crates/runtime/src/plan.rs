//! Planning memory for one set of input dimensions: which value lies where.
//!
//! Shapes are inferred once more, with the numbers at hand. Every tensor whose shape is then known
//! gets a place in the arena for as long as it is needed; a view gets the place of what it views;
//! an operation in place gets the place of its input. Places are found by walking the steps with a
//! list of free ranges, best fit first, as in Sekiyama et al., "Profile-guided memory optimization
//! for deep neural networks" (2018), section 4. Values of unknown shape, strings, sequences and the
//! outputs of the model get memory of their own when they are made.

use std::collections::BTreeMap;
use std::ops::Range;

use sardonyx_model::{Type, ValueId};
use sardonyx_ops::Known;
use sardonyx_passes::{InferOptions, Inference, infer};
use sardonyx_tensor::{ALIGNMENT, DataType, Dims, Tensor};

use crate::error::{InputError, RunError};
use crate::executable::{Body, Executable};
use crate::layout::{Layout, ViewSite, is_whole};
use crate::program::Slot;

/// Where the values of a run lie.
#[derive(Debug)]
pub(crate) struct Plan {
    /// By slot.
    pub(crate) places: Vec<Place>,
    /// By slot: type and shape, where known.
    pub(crate) types: Vec<Option<(DataType, Dims)>>,
    /// By step: the input whose memory the first output takes over.
    pub(crate) over: Vec<Option<usize>>,
    /// By step: whether nothing needs to happen, because the output is a view.
    pub(crate) skip: Vec<bool>,
    /// By step: slots that nobody reads later and that own memory.
    pub(crate) last_use: Vec<Vec<Slot>>,
    /// Bytes of the arena.
    pub(crate) arena_bytes: usize,
}

/// Where a value lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// With the constants.
    Constant,
    /// In memory of its own: model inputs and outputs, and values of unknown shape.
    Own,
    /// In the arena, at a range of bytes.
    Arena(Range<usize>),
    /// Within the memory of another slot, under its own dimensions: in all of it from the first
    /// element on, or as a layout says.
    View(Slot, Option<Layout>),
}

impl Plan {
    /// The slot whose memory a slot has.
    pub(crate) fn root(&self, slot: Slot) -> Slot {
        match self.places[slot.index()] {
            // Views point at what is no view.
            Place::View(root, _) => root,
            _ => slot,
        }
    }

    /// Whether a slot has no memory of its own.
    pub(crate) fn is_view(&self, slot: Slot) -> bool {
        matches!(self.places[slot.index()], Place::View(..))
    }

    /// How a slot lies in the memory of its root, if not simply from the first element on.
    pub(crate) fn layout(&self, slot: Slot) -> Option<&Layout> {
        match &self.places[slot.index()] {
            Place::View(_, layout) => layout.as_ref(),
            _ => None,
        }
    }
}

/// Plans for inputs of the given types, by position among the graph's inputs.
pub(crate) fn plan(executable: &Executable, inputs: &[Option<Type>]) -> Result<Plan, RunError> {
    let constant = |value: ValueId| settled(executable, value);
    let options = InferOptions {
        inputs,
        symbols: &executable.dims,
        known: Some(&constant),
        ..InferOptions::default()
    };
    let inference = infer(&executable.resolved, options).map_err(|findings| {
        let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
        RunError::Input(InputError::new(format!(
            "with inputs of these shapes the model contradicts itself\n  {}",
            lines.join("\n  ")
        )))
    })?;
    let body = &executable.body;
    let count = body.slots.len();
    let mut plan = Plan {
        places: vec![Place::Own; count],
        types: body
            .slots
            .iter()
            .map(|slot| match (&slot.constant, &slot.outline) {
                (Some(tensor), _) => Some((tensor.data_type(), tensor.dims().into())),
                (None, Some(outline)) => Some(outline.clone()),
                (None, None) => sized(inference.ty(slot.value)?),
            })
            .collect(),
        over: vec![None; body.steps.len()],
        skip: vec![false; body.steps.len()],
        last_use: vec![Vec::new(); body.steps.len()],
        arena_bytes: 0,
    };
    for (place, slot) in plan.places.iter_mut().zip(&body.slots) {
        if slot.is_constant() {
            *place = Place::Constant;
        }
    }
    // What must stay where it is: model inputs and outputs own their memory.
    let mut owns = vec![false; count];
    for slot in body.inputs.iter().flatten().chain(&body.outputs) {
        owns[slot.index()] = true;
    }
    place_views(body, &owns, &inference, &mut plan);
    let last_read = last_reads(body, &plan);
    place_in_arena(body, &owns, &last_read, &mut plan);
    for (slot, last) in last_read.iter().enumerate() {
        if let (Some(step), Place::Own) = (last, &plan.places[slot])
            && !body.outputs.iter().any(|output| output.index() == slot)
        {
            plan.last_use[*step].push(Slot(slot as u32));
        }
    }
    Ok(plan)
}

/// What is known of a value for all sizes of the inputs. What was known only as a formula of these
/// is found anew.
pub(crate) fn settled(executable: &Executable, value: ValueId) -> Option<Known> {
    let known = executable.inference.known(value)?;
    let is_settled = match known {
        Known::Tensor(_) => true,
        Known::Ints { values, .. } => values.iter().all(|value| value.known().is_some()),
    };
    is_settled.then(|| known.clone())
}

/// Element type and dimensions of a tensor of which everything is known.
pub(crate) fn sized(ty: &Type) -> Option<(DataType, Dims)> {
    let dims = ty.shape()?.iter().map(|dim| dim.size()).collect::<Option<Dims>>()?;
    Some((ty.elem()?, dims))
}

fn bytes_of(plan: &Plan, slot: Slot) -> Option<usize> {
    let (data_type, dims) = plan.types[slot.index()].as_ref()?;
    data_type.storage_bytes(sardonyx_tensor::shape::elems(dims).ok()?)
}

/// Lets outputs be views where the kernel can say how, and everybody who reads them can follow.
fn place_views(body: &Body, owns: &[bool], inference: &Inference, plan: &mut Plan) {
    let follows = readers_that_follow_strides(body);
    for (index, step) in body.steps.iter().enumerate() {
        let (Some(_), Some(Some(input))) = (&step.movement, step.inputs.first()) else {
            continue;
        };
        let Some((data_type, from)) = plan.types[input.index()].clone() else {
            continue;
        };
        // Strings have no bytes, and elements below one byte no address: they are viewed as a whole
        // or not at all.
        let Some(bits) = data_type.bits() else {
            continue;
        };
        let layout = match plan.layout(*input) {
            Some(layout) => layout.clone(),
            None => Layout::dense(&from),
        };
        let ints = |position: usize| {
            let slot = step.inputs.get(position).copied().flatten()?;
            let slot = &body.slots[slot.index()];
            let known = || inference.known(slot.value).and_then(Known::to_tensor);
            integers(&slot.constant.clone().or_else(known)?)
        };
        let has_input = |position: usize| step.inputs.get(position).is_some_and(Option::is_some);
        let mut all = true;
        for (output, slot) in step.outputs.iter().enumerate() {
            let Some(slot) = slot else { continue };
            let viewed = match &plan.types[slot.index()] {
                Some((output_type, to)) if *output_type == data_type && !owns[slot.index()] => step
                    .movement
                    .as_ref()
                    .and_then(|movement| {
                        movement.view(&ViewSite {
                            output,
                            from: &from,
                            layout: &layout,
                            to,
                            ints: &ints,
                            has_input: &has_input,
                        })
                    })
                    .filter(|layout| layout.is_dense(to) || follows[slot.index()])
                    // Who follows strides does so forwards.
                    .filter(|layout| layout.strides.iter().all(|stride| *stride >= 0))
                    .map(|layout| (is_whole(to, &layout), layout))
                    .filter(|(whole, _)| *whole || bits % 8 == 0),
                _ => None,
            };
            match viewed {
                Some((whole, layout)) => {
                    let root = plan.root(*input);
                    let whole = whole && bytes_of(plan, root) == bytes_of(plan, *slot);
                    plan.places[slot.index()] = Place::View(root, (!whole).then_some(layout));
                }
                None => all = false,
            }
        }
        plan.skip[index] = all && step.outputs.iter().any(Option::is_some);
    }
}

/// By slot: whether every step that reads it may be given strides.
fn readers_that_follow_strides(body: &Body) -> Vec<bool> {
    let mut follows = vec![true; body.slots.len()];
    for step in &body.steps {
        for (position, slot) in step.inputs.iter().enumerate() {
            if let Some(slot) = slot {
                follows[slot.index()] &= step.rules.strided.contains(position);
            }
        }
    }
    follows
}

/// The elements of a tensor of integers.
pub(crate) fn integers(tensor: &Tensor) -> Option<Vec<i64>> {
    match tensor.data_type() {
        DataType::Int64 => tensor.to_vec().ok(),
        DataType::Int32 => Some(tensor.to_vec::<i32>().ok()?.into_iter().map(i64::from).collect()),
        _ => None,
    }
}

/// By slot: the last step that reads it, directly or through a view.
fn last_reads(body: &Body, plan: &Plan) -> Vec<Option<usize>> {
    let mut last = vec![None; body.slots.len()];
    for (index, step) in body.steps.iter().enumerate() {
        // What is made and never read lives for one step.
        for slot in step.outputs.iter().chain(&step.inputs).flatten() {
            last[plan.root(*slot).index()] = Some(index);
        }
    }
    last
}

fn place_in_arena(body: &Body, owns: &[bool], last_read: &[Option<usize>], plan: &mut Plan) {
    let mut free = FreeList::default();
    let mut dying: Vec<Vec<Range<usize>>> = vec![Vec::new(); body.steps.len()];
    for (index, step) in body.steps.iter().enumerate() {
        if !plan.skip[index] {
            for (position, output) in step.outputs.iter().enumerate() {
                let Some(output) = output.filter(|slot| {
                    !owns[slot.index()] && !matches!(plan.places[slot.index()], Place::View(..))
                }) else {
                    continue;
                };
                let Some(bytes) = bytes_of(plan, output) else {
                    continue;
                };
                let last = last_read[output.index()].unwrap_or(index);
                let over = if position == 0 {
                    take_over(body, plan, last_read, index, output)
                } else {
                    None
                };
                let range = match over {
                    Some((input, range)) => {
                        plan.over[index] = Some(input);
                        // The range dies with the output now, not with the input.
                        dying[index].retain(|dead| *dead != range);
                        range
                    }
                    None => free.take(bytes),
                };
                plan.arena_bytes = plan.arena_bytes.max(range.end);
                dying[last].push(range.clone());
                plan.places[output.index()] = Place::Arena(range);
            }
        }
        for range in dying[index].drain(..) {
            free.give(range);
        }
    }
}

/// The input of a step whose memory its first output may have: it dies here, is read once, and has
/// the same size.
fn take_over(
    body: &Body,
    plan: &Plan,
    last_read: &[Option<usize>],
    index: usize,
    output: Slot,
) -> Option<(usize, Range<usize>)> {
    let step = &body.steps[index];
    step.rules.in_place.iter().find_map(|position| {
        let input = step.inputs.get(*position).copied().flatten()?;
        let root = plan.root(input);
        let Place::Arena(range) = &plan.places[root.index()] else {
            return None;
        };
        let read_once =
            step.inputs.iter().flatten().filter(|slot| plan.root(**slot) == root).count() == 1;
        // A part of another value is not its own to write.
        let same =
            plan.types[input.index()] == plan.types[output.index()] && plan.layout(input).is_none();
        (same && read_once && last_read[root.index()] == Some(index))
            .then(|| (*position, range.clone()))
    })
}

/// Ranges of the arena that are free, by their start. Everything behind the last one taken is free
/// as well.
#[derive(Debug, Default)]
struct FreeList {
    /// Start to end.
    ranges: BTreeMap<usize, usize>,
    end: usize,
}

impl FreeList {
    /// The smallest free range that is large enough, or new memory.
    fn take(&mut self, bytes: usize) -> Range<usize> {
        let size = bytes.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        let fits = self.ranges.iter().filter(|(start, end)| *end - *start >= size);
        let best = fits.min_by_key(|(start, end)| *end - *start).map(|(start, end)| (*start, *end));
        let start = match best {
            Some((start, end)) => {
                self.ranges.remove(&start);
                if end > start + size {
                    self.ranges.insert(start + size, end);
                }
                start
            }
            None => {
                // A free range at the very end is used as a beginning.
                let start = match self.ranges.last_key_value() {
                    Some((start, end)) if *end == self.end => *start,
                    _ => self.end,
                };
                self.ranges.remove(&start);
                self.end = start + size;
                start
            }
        };
        start..start + bytes
    }

    fn give(&mut self, range: Range<usize>) {
        let mut start = range.start;
        let mut end = range.start + range.len().next_multiple_of(ALIGNMENT).max(ALIGNMENT);
        if let Some(next) = self.ranges.remove(&end) {
            end = next;
        }
        if let Some((before, before_end)) = self.ranges.range(..start).next_back()
            && *before_end == start
        {
            start = *before;
        }
        self.ranges.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_ranges_join_and_are_used_again() {
        let mut free = FreeList::default();
        let (a, b, c) = (free.take(100), free.take(64), free.take(1));
        assert_eq!((a.clone(), b.clone(), c.clone()), (0..100, 128..192, 192..193));
        free.give(a);
        free.give(b);
        assert_eq!(free.take(192), 0..192);
        free.give(c);
        assert_eq!(free.take(1000), 192..1192, "the free end grows");
    }
}
