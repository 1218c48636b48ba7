//! Layers of networks: convolutions, pools, normalizations, attention, recurrent layers. Images are
//! split by batch and channels, and not in space.

use sardonyx_model::Dim;

use super::{Change, Combine, Factors, Operands};

/// `Conv`: by batch, output channels, groups, and input channels, whose sums are combined. A bias
/// is added to one of them.
pub(crate) fn conv(cx: &Operands<'_>) -> Option<Factors> {
    let group = usize::try_from(cx.int("group")?).ok().filter(|group| *group > 0)?;
    convolution(cx, group, 2, true)
}

/// `ConvInteger` with one zero point for each tensor.
pub(crate) fn conv_integer(cx: &Operands<'_>) -> Option<Factors> {
    let group = usize::try_from(cx.int("group")?).ok().filter(|group| *group > 0)?;
    let is_one =
        |input| cx.dims(input).is_none_or(|dims| dims.iter().all(|size| *size == Dim::Known(1)));
    if !(is_one(2) && is_one(3)) {
        return None;
    }
    // Padding is with the zero point, so that sums over channels can be taken apart.
    convolution(cx, group, usize::MAX, true)
}

fn convolution(cx: &Operands<'_>, group: usize, bias: usize, sums: bool) -> Option<Factors> {
    let (x, w, y) = (cx.dims(0)?, cx.dims(1)?, cx.output_dims(0)?);
    if x.len() < 3 || w.len() != x.len() || y.len() != x.len() {
        return None;
    }
    let made = w[0].size().filter(|made| made.is_multiple_of(group))?;
    let mut found = Factors::whole(cx);
    let batch = found.factor(x[0].clone());
    found.input(0, 0, batch);
    found.output(0, 0, batch);
    let has_bias = cx.input(bias).is_some();
    if group > 1 {
        let groups = found.factor(group);
        found.input(0, 1, groups);
        found.input(1, 0, groups);
        found.output(0, 1, groups);
        if has_bias {
            found.input(bias, 0, groups);
        }
        found.changes.push(Change::Attribute { name: "group", factors: [Some(groups), None] });
    }
    // Within a group: channels that are read, and channels that are made.
    if group == 1 {
        if sums {
            let read = found.combined(w[1].clone(), Combine::Sum);
            found.input(0, 1, read);
            found.input(1, 1, read);
            if has_bias {
                found.changes.push(Change::Once { input: bias, rest: None });
            }
        }
    } else {
        let read = found.fixed(w[1].clone());
        found.input(0, 1, read);
    }
    if group == 1 {
        let made = found.factor(made);
        found.input(1, 0, made);
        found.output(0, 1, made);
        if has_bias {
            found.input(bias, 0, made);
        }
    } else {
        // Parts of all groups would need the same of what they read, which nobody asks for.
        let made = found.fixed(made / group);
        found.input(1, 0, made);
        found.output(0, 1, made);
        if has_bias {
            found.input(bias, 0, made);
        }
    }
    Some(found)
}

/// `ConvTranspose`: by batch, and output channels or groups.
pub(crate) fn conv_transpose(cx: &Operands<'_>) -> Option<Factors> {
    let group = usize::try_from(cx.int("group")?).ok().filter(|group| *group > 0)?;
    let (x, w) = (cx.dims(0)?, cx.dims(1)?);
    let mut found = Factors::whole(cx);
    let batch = found.factor(x.first()?.clone());
    found.input(0, 0, batch);
    found.output(0, 0, batch);
    if group == 1 {
        let made = found.factor(w.get(1)?.clone());
        found.input(1, 1, made);
        found.output(0, 1, made);
        if cx.input(2).is_some() {
            found.input(2, 0, made);
        }
    }
    Some(found)
}

/// Pools: by batch and channels; by batch alone where they give the places of what they take.
pub(crate) fn pool(cx: &Operands<'_>) -> Option<Factors> {
    let (x, y) = (cx.dims(0)?, cx.output_dims(0)?);
    let has_places = cx.output_dims(1).is_some();
    let mut found = Factors::whole(cx);
    for axis in 0..if has_places { 1 } else { 2 } {
        (x.get(axis)? == y.get(axis)?).then_some(())?;
        let factor = found.factor(x[axis].clone());
        found.input(0, axis, factor);
        found.output(0, axis, factor);
        if has_places {
            found.output(1, axis, factor);
            let stride = x[1..].iter().map(Dim::size).product::<Option<usize>>()?;
            found.changes.push(Change::Places { output: 1, factor, stride });
        }
    }
    Some(found)
}

/// The first axis of the first input and of all outputs.
pub(crate) fn batch(cx: &Operands<'_>) -> Option<Factors> {
    let size = cx.dims(0)?.first()?;
    let mut found = Factors::whole(cx);
    let factor = found.factor(size.clone());
    found.input(0, 0, factor);
    for output in 0..cx.output_count() {
        let Some(own) = cx.output_dims(output) else { continue };
        (own.first() == Some(size)).then(|| found.output(output, 0, factor))?;
    }
    Some(found)
}

/// `BatchNormalization` with stored statistics: all axes, the others' one with the channels.
pub(crate) fn batch_normalization(cx: &Operands<'_>) -> Option<Factors> {
    if cx.int("training_mode")? != 0 {
        return None;
    }
    let mut found = super::elements::elements_of_first(cx)?;
    if let Some(channels) = found.inputs[0].get(1).and_then(|axis| axis.first().copied()) {
        (1..5).for_each(|input| found.input(input, 0, channels));
    }
    Some(found)
}

/// `InstanceNormalization`: by batch and channels.
pub(crate) fn instance_normalization(cx: &Operands<'_>) -> Option<Factors> {
    let mut found = pool(cx)?;
    let channels = *found.inputs[0][1].first()?;
    (1..3).for_each(|input| found.input(input, 0, channels));
    Some(found)
}

/// The axes of a tensor of heads: batch, heads, positions, and the size of a head; of three axes
/// the heads are in the last.
struct Heads {
    heads: [Option<usize>; 2],
    batch: usize,
}

impl Heads {
    fn input(&self, found: &mut Factors, input: usize, rank: usize, size: usize) {
        found.input(input, 0, self.batch);
        let axis = if rank == 4 { 1 } else { 2 };
        self.heads.iter().flatten().for_each(|heads| found.input(input, axis, *heads));
        if rank == 3 {
            let size = found.fixed(size);
            found.input(input, axis, size);
        }
    }

    fn output(&self, found: &mut Factors, output: usize, rank: usize, size: usize) {
        found.output(output, 0, self.batch);
        let axis = if rank == 4 { 1 } else { 2 };
        self.heads.iter().flatten().for_each(|heads| found.output(output, axis, *heads));
        if rank == 3 {
            let size = found.fixed(size);
            found.output(output, axis, size);
        }
    }
}

/// `Attention`: by batch and heads. Where several heads of queries share keys and values, all of
/// these go together.
pub(crate) fn attention(cx: &Operands<'_>) -> Option<Factors> {
    let (q, k, v, y) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?, cx.output_dims(0)?);
    let count = |dims: &[Dim], name| match dims.len() {
        4 => dims[1].size(),
        _ => cx.int(name).and_then(|count| usize::try_from(count).ok()),
    };
    let (queries, shared) = (count(q, "q_num_heads")?, count(k, "kv_num_heads")?);
    if shared == 0 || queries % shared != 0 || queries == 0 {
        return None;
    }
    let mut found = Factors::whole(cx);
    let batch = found.factor(q.first()?.clone());
    let (heads, within) = (found.factor(shared), found.factor(queries / shared));
    let of_queries = Heads { batch, heads: [Some(heads), Some(within)] };
    let of_keys = Heads { batch, heads: [Some(heads), None] };
    // The size of a head counts where the heads are in one axis with it.
    let width = |dims: &[Dim]| if dims.len() == 3 { dims[2].size() } else { Some(0) };
    of_queries.input(&mut found, 0, q.len(), width(q)? / queries);
    of_keys.input(&mut found, 1, k.len(), width(k)? / shared);
    of_keys.input(&mut found, 2, v.len(), width(v)? / shared);
    of_queries.output(&mut found, 0, y.len(), width(y)? / queries);
    for input in [4, 5] {
        if cx.dims(input).is_some() {
            of_keys.input(&mut found, input, 4, 0);
        }
    }
    for output in 1..3 {
        if cx.output_dims(output).is_some() {
            of_keys.output(&mut found, output, 4, 0);
        }
    }
    if let Some(scores) = cx.output_dims(3) {
        of_queries.output(&mut found, 3, scores.len(), 0);
    }
    if let Some(mask) = cx.dims(3) {
        // A mask broadcasts to [batch, heads, queries, keys].
        let before = 4usize.checked_sub(mask.len())?;
        if before == 0 {
            found.broadcast(cx, (3, 0), batch)?;
        }
        if before <= 1 {
            match mask[1 - before].size()? {
                1 if queries > 1 => {}
                _ => {
                    found.input(3, 1 - before, heads);
                    found.input(3, 1 - before, within);
                }
            }
        }
    }
    if cx.dims(6).is_some() {
        found.input(6, 0, batch);
    }
    if q.len() == 3 {
        let names =
            [("q_num_heads", [Some(heads), Some(within)]), ("kv_num_heads", [Some(heads), None])];
        let changes = names.map(|(name, factors)| Change::Attribute { name, factors });
        found.changes.extend(changes);
    }
    Some(found)
}

/// `RotaryEmbedding`: by batch and heads.
pub(crate) fn rotary_embedding(cx: &Operands<'_>) -> Option<Factors> {
    let x = cx.dims(0)?;
    let heads = match x.len() {
        4 => x[1].size()?,
        _ => usize::try_from(cx.int("num_heads")?).ok().filter(|heads| *heads > 0)?,
    };
    let mut found = Factors::whole(cx);
    let factors =
        Heads { batch: found.factor(x[0].clone()), heads: [Some(found.factor(heads)), None] };
    // The size of a head is one factor of both sides.
    let width = if x.len() == 3 { x[2].size()? / heads } else { 0 };
    factors.input(&mut found, 0, x.len(), width);
    factors.output(&mut found, 0, x.len(), width);
    if x.len() == 3 {
        found.changes.push(Change::Attribute { name: "num_heads", factors: factors.heads });
    }
    match cx.dims(3) {
        Some(_) => found.input(3, 0, factors.batch),
        // Without positions, the tables have an axis for the batch.
        None => {
            for input in [1, 2] {
                let dims = cx.dims(input).filter(|dims| dims.len() == 3)?;
                if dims[0] != x[0] {
                    return None;
                }
                found.input(input, 0, factors.batch);
            }
        }
    }
    Some(found)
}

/// `RNN`, `GRU`, `LSTM`: by batch.
pub(crate) fn recurrent(cx: &Operands<'_>) -> Option<Factors> {
    let x = cx.dims(0)?;
    let batch_first = cx.int("layout")? != 0;
    let mut found = Factors::whole(cx);
    let batch = found.factor(x.get(usize::from(!batch_first))?.clone());
    found.input(0, usize::from(!batch_first), batch);
    if cx.dims(4).is_some() {
        found.input(4, 0, batch);
    }
    let of_states = usize::from(!batch_first);
    for input in [5, 6] {
        if cx.dims(input).is_some_and(|dims| dims.len() == 3) {
            found.input(input, of_states, batch);
        }
    }
    if cx.output_dims(0).is_some() {
        found.output(0, if batch_first { 0 } else { 2 }, batch);
    }
    for output in [1, 2] {
        if cx.output_dims(output).is_some() {
            found.output(output, of_states, batch);
        }
    }
    Some(found)
}
