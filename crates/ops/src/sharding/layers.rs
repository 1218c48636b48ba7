//! Rules for layers of networks: convolutions, pools, normalizations, attention, recurrent layers.
//! Images are split by batch and channels, not in space.

use sardonyx_model::Dim;

use super::{Change, Combine, Factors, Operands};

/// Splits `Conv` by batch, output channels, groups, and input channels, whose partial sums are
/// combined. A bias is added to one of them.
pub(crate) fn conv(cx: &Operands<'_>) -> Option<Factors> {
    let group = usize::try_from(cx.int("group")?).ok().filter(|group| *group > 0)?;
    convolution(cx, group, 2)
}

/// Splits `ConvInteger` with one zero point for each tensor.
pub(crate) fn conv_integer(cx: &Operands<'_>) -> Option<Factors> {
    let group = usize::try_from(cx.int("group")?).ok().filter(|group| *group > 0)?;
    let mut zero_points = [2, 3].into_iter().filter_map(|input| cx.dims(input));
    if !zero_points.all(|dims| dims.iter().all(|size| *size == Dim::Known(1))) {
        return None;
    }
    // Padding holds the zero point, so partial sums over channels add up to the whole sum.
    convolution(cx, group, usize::MAX)
}

fn convolution(cx: &Operands<'_>, group: usize, bias: usize) -> Option<Factors> {
    let (x, w, y) = (cx.dims(0)?, cx.dims(1)?, cx.output_dims(0)?);
    if x.len() < 3 || w.len() != x.len() || y.len() != x.len() {
        return None;
    }
    let made = w[0].size().filter(|made| made.is_multiple_of(group))?;
    let mut found = Factors::whole(cx);
    let batch = found.add_factor(x[0].clone());
    found.append_to_input(0, 0, batch);
    found.append_to_output(0, 0, batch);
    let has_bias = cx.input(bias).is_some();
    if group > 1 {
        let groups = found.add_factor(group);
        found.append_to_input(0, 1, groups);
        found.append_to_input(1, 0, groups);
        found.append_to_output(0, 1, groups);
        if has_bias {
            found.append_to_input(bias, 0, groups);
        }
        found.changes.push(Change::Attribute { name: "group", factors: [Some(groups), None] });
    }
    // Within a group: input channels, then output channels.
    if group == 1 {
        let read = found.add_combined(w[1].clone(), Combine::Sum);
        found.append_to_input(0, 1, read);
        found.append_to_input(1, 1, read);
        if has_bias {
            found.changes.push(Change::Once { input: bias, rest: None });
        }
    } else {
        let read = found.add_fixed(w[1].clone());
        found.append_to_input(0, 1, read);
    }
    if group == 1 {
        let made = found.add_factor(made);
        found.append_to_input(1, 0, made);
        found.append_to_output(0, 1, made);
        if has_bias {
            found.append_to_input(bias, 0, made);
        }
    } else {
        // Each part of a group's output channels would read all of the group's input channels, so
        // groups are the only cut.
        let made = found.add_fixed(made / group);
        found.append_to_input(1, 0, made);
        found.append_to_output(0, 1, made);
        if has_bias {
            found.append_to_input(bias, 0, made);
        }
    }
    Some(found)
}

/// Splits `ConvTranspose` by batch, and by output channels unless it has several groups.
pub(crate) fn conv_transpose(cx: &Operands<'_>) -> Option<Factors> {
    let group = usize::try_from(cx.int("group")?).ok().filter(|group| *group > 0)?;
    let (x, w) = (cx.dims(0)?, cx.dims(1)?);
    let mut found = Factors::whole(cx);
    let batch = found.add_factor(x.first()?.clone());
    found.append_to_input(0, 0, batch);
    found.append_to_output(0, 0, batch);
    if group == 1 {
        let made = found.add_factor(w.get(1)?.clone());
        found.append_to_input(1, 1, made);
        found.append_to_output(0, 1, made);
        if cx.input(2).is_some() {
            found.append_to_input(2, 0, made);
        }
    }
    Some(found)
}

/// Splits pools by batch and channels, or by batch alone if they return the positions of the
/// maxima.
pub(crate) fn pool(cx: &Operands<'_>) -> Option<Factors> {
    let (x, y) = (cx.dims(0)?, cx.output_dims(0)?);
    let has_places = cx.output_dims(1).is_some();
    let mut found = Factors::whole(cx);
    for axis in 0..if has_places { 1 } else { 2 } {
        (x.get(axis)? == y.get(axis)?).then_some(())?;
        let factor = found.add_factor(x[axis].clone());
        found.append_to_input(0, axis, factor);
        found.append_to_output(0, axis, factor);
        if has_places {
            found.append_to_output(1, axis, factor);
            let stride = x[1..].iter().map(Dim::size).product::<Option<usize>>()?;
            found.changes.push(Change::Places { output: 1, factor, stride });
        }
    }
    Some(found)
}

/// Splits the first axis of the first input and of all outputs.
pub(crate) fn batch(cx: &Operands<'_>) -> Option<Factors> {
    let size = cx.dims(0)?.first()?;
    let mut found = Factors::whole(cx);
    let factor = found.add_factor(size.clone());
    found.append_to_input(0, 0, factor);
    for output in 0..cx.output_count() {
        let Some(own) = cx.output_dims(output) else { continue };
        (own.first() == Some(size)).then(|| found.append_to_output(output, 0, factor))?;
    }
    Some(found)
}

/// Splits `BatchNormalization` with stored statistics by all axes. Scale, bias and statistics have
/// the factor of the channels.
pub(crate) fn batch_normalization(cx: &Operands<'_>) -> Option<Factors> {
    if cx.int("training_mode")? != 0 {
        return None;
    }
    let mut found = super::elements::elements_of_first(cx)?;
    if let Some(channels) = found.inputs[0].get(1).and_then(|axis| axis.first().copied()) {
        (1..5).for_each(|input| found.append_to_input(input, 0, channels));
    }
    Some(found)
}

/// Splits `InstanceNormalization` by batch and channels.
pub(crate) fn instance_normalization(cx: &Operands<'_>) -> Option<Factors> {
    let mut found = pool(cx)?;
    let channels = *found.inputs[0][1].first()?;
    (1..3).for_each(|input| found.append_to_input(input, 0, channels));
    Some(found)
}

/// Factors of a tensor of heads with the axes batch, heads, positions and head size. With three
/// axes the heads are the outer part of the last one.
struct Heads {
    heads: [Option<usize>; 2],
    batch: usize,
}

impl Heads {
    /// Gives an input the factors of its axes. `size` is the head size, used with three axes.
    fn append_to_input(&self, found: &mut Factors, input: usize, rank: usize, size: usize) {
        found.append_to_input(input, 0, self.batch);
        let axis = if rank == 4 { 1 } else { 2 };
        self.heads.iter().flatten().for_each(|heads| found.append_to_input(input, axis, *heads));
        if rank == 3 {
            let size = found.add_fixed(size);
            found.append_to_input(input, axis, size);
        }
    }

    /// Gives an output the factors of its axes. `size` is the head size, used with three axes.
    fn append_to_output(&self, found: &mut Factors, output: usize, rank: usize, size: usize) {
        found.append_to_output(output, 0, self.batch);
        let axis = if rank == 4 { 1 } else { 2 };
        self.heads.iter().flatten().for_each(|heads| found.append_to_output(output, axis, *heads));
        if rank == 3 {
            let size = found.add_fixed(size);
            found.append_to_output(output, axis, size);
        }
    }
}

/// Returns the number of heads of an operand: its second axis of four, or the attribute `name`.
fn count_heads(cx: &Operands<'_>, dims: &[Dim], name: &str) -> Option<usize> {
    match dims.len() {
        4 => dims[1].size(),
        _ => cx.int(name).and_then(|count| usize::try_from(count).ok()),
    }
}

/// Returns the size of the last of three axes, which holds heads and their elements, or 0 for an
/// operand with an axis for the heads.
fn inner_width(dims: &[Dim]) -> Option<usize> {
    if dims.len() == 3 { dims[2].size() } else { Some(0) }
}

/// Splits `Attention` by batch and heads. Heads of queries that share keys and values stay
/// together.
pub(crate) fn attention(cx: &Operands<'_>) -> Option<Factors> {
    let (q, k, v, y) = (cx.dims(0)?, cx.dims(1)?, cx.dims(2)?, cx.output_dims(0)?);
    let queries = count_heads(cx, q, "q_num_heads")?;
    let shared = count_heads(cx, k, "kv_num_heads")?;
    if shared == 0 || queries % shared != 0 || queries == 0 {
        return None;
    }
    let mut found = Factors::whole(cx);
    let batch = found.add_factor(q.first()?.clone());
    let (heads, within) = (found.add_factor(shared), found.add_factor(queries / shared));
    let of_queries = Heads { batch, heads: [Some(heads), Some(within)] };
    let of_keys = Heads { batch, heads: [Some(heads), None] };
    of_queries.append_to_input(&mut found, 0, q.len(), inner_width(q)? / queries);
    of_keys.append_to_input(&mut found, 1, k.len(), inner_width(k)? / shared);
    of_keys.append_to_input(&mut found, 2, v.len(), inner_width(v)? / shared);
    of_queries.append_to_output(&mut found, 0, y.len(), inner_width(y)? / queries);
    for input in [4, 5] {
        if cx.dims(input).is_some() {
            of_keys.append_to_input(&mut found, input, 4, 0);
        }
    }
    for output in 1..3 {
        if cx.output_dims(output).is_some() {
            of_keys.append_to_output(&mut found, output, 4, 0);
        }
    }
    if let Some(scores) = cx.output_dims(3) {
        of_queries.append_to_output(&mut found, 3, scores.len(), 0);
    }
    if let Some(mask) = cx.dims(3) {
        // A mask broadcasts to [batch, heads, queries, keys].
        let before = 4usize.checked_sub(mask.len())?;
        if before == 0 {
            found.broadcast(cx, 3, 0, batch)?;
        }
        if before <= 1 {
            match mask[1 - before].size()? {
                1 if queries > 1 => {}
                _ => {
                    found.append_to_input(3, 1 - before, heads);
                    found.append_to_input(3, 1 - before, within);
                }
            }
        }
    }
    if cx.dims(6).is_some() {
        found.append_to_input(6, 0, batch);
    }
    if q.len() == 3 {
        let names =
            [("q_num_heads", [Some(heads), Some(within)]), ("kv_num_heads", [Some(heads), None])];
        let changes = names.map(|(name, factors)| Change::Attribute { name, factors });
        found.changes.extend(changes);
    }
    Some(found)
}

/// Splits `RotaryEmbedding` by batch and heads.
pub(crate) fn rotary_embedding(cx: &Operands<'_>) -> Option<Factors> {
    let x = cx.dims(0)?;
    let heads = match x.len() {
        4 => x[1].size()?,
        _ => usize::try_from(cx.int("num_heads")?).ok().filter(|heads| *heads > 0)?,
    };
    let mut found = Factors::whole(cx);
    let factors = Heads {
        batch: found.add_factor(x[0].clone()),
        heads: [Some(found.add_factor(heads)), None],
    };
    // Input and output each have a factor for the head size.
    let width = if x.len() == 3 { x[2].size()? / heads } else { 0 };
    factors.append_to_input(&mut found, 0, x.len(), width);
    factors.append_to_output(&mut found, 0, x.len(), width);
    if x.len() == 3 {
        found.changes.push(Change::Attribute { name: "num_heads", factors: factors.heads });
    }
    match cx.dims(3) {
        Some(_) => found.append_to_input(3, 0, factors.batch),
        // Without positions, the tables have an axis for the batch.
        None => {
            for input in [1, 2] {
                let dims = cx.dims(input).filter(|dims| dims.len() == 3)?;
                if dims[0] != x[0] {
                    return None;
                }
                found.append_to_input(input, 0, factors.batch);
            }
        }
    }
    Some(found)
}

/// Splits `RNN`, `GRU` and `LSTM` by batch.
pub(crate) fn recurrent(cx: &Operands<'_>) -> Option<Factors> {
    let x = cx.dims(0)?;
    let batch_first = cx.int("layout")? != 0;
    let mut found = Factors::whole(cx);
    let batch = found.add_factor(x.get(usize::from(!batch_first))?.clone());
    found.append_to_input(0, usize::from(!batch_first), batch);
    if cx.dims(4).is_some() {
        found.append_to_input(4, 0, batch);
    }
    let of_states = usize::from(!batch_first);
    for input in [5, 6] {
        if cx.dims(input).is_some_and(|dims| dims.len() == 3) {
            found.append_to_input(input, of_states, batch);
        }
    }
    if cx.output_dims(0).is_some() {
        found.append_to_output(0, if batch_first { 0 } else { 2 }, batch);
    }
    for output in [1, 2] {
        if cx.output_dims(output).is_some() {
            found.append_to_output(output, of_states, batch);
        }
    }
    Some(found)
}
