//! Attention with heads on an axis or packed into the last one, masks, windows, and cached keys and
//! values.
//!
//! Strides select heads, so no element moves before the kernel runs. If only a permutation of axes
//! follows, the kernel writes its output in that order.

use bytemuck::Pod;
use sardonyx_kernels::attention::{
    Attention as Job, Heads, HeadsMut, Mask, NO_WINDOW, Sizes, Stage, StageScores, attention,
    attention_doubles, attention_plain,
};
use sardonyx_kernels::number::Math;
use sardonyx_kernels::{Ended, Exec};
use sardonyx_passes::BLIND_IS_NAN;
use sardonyx_tensor::{CastOptions, DataType, Dims, Element, TensorView, cast_slices, shape};
use smallvec::{SmallVec, smallvec};

use crate::error::{BindError, KernelError, fail};
use crate::kernel::{Call, Inputs, Kernel, MemoryRules, Site};
use crate::layout::Layout;
use crate::ops::narrow::widen;
use crate::ops::tensor::moves;
use crate::program::{self, Op};
use crate::scratch::{Contents, Scratch};

const MASK: usize = 3;
const PAST_KEY: usize = 4;
const PAST_VALUE: usize = 5;
const VALID_KEYS: usize = 6;
const PRESENT_KEY: usize = 1;
const PRESENT_VALUE: usize = 2;
const SCORES: usize = 3;

struct Attention {
    /// Type of queries, keys, and values computed from them.
    elem: DataType,
    value_elem: DataType,
    /// Heads packed into the last axis of queries, and of keys and values; 0 if they have an axis.
    packed: [usize; 2],
    scale: Option<f64>,
    softcap: f64,
    is_causal: bool,
    /// Number of keys to the left and to the right that a query attends to.
    limits: [Option<usize>; 2],
    stage: Stage,
    blind_is_zero: bool,
    /// Order of the output's axes among batch, head, row and feature.
    order: Option<Dims>,
    /// Whether keys and values include the cached ones.
    is_joined: bool,
}

/// Lowers `Attention`.
pub(crate) fn lower(site: &Site<'_>) -> Result<Op, BindError> {
    let operands = site.operands();
    let attention = program::Attention { operands, permute: None, is_joined: false };
    Ok(Op::Attention(Box::new(attention)))
}

/// Selects the kernel, which writes its output in the order of axes of `attention`.
pub(crate) fn select(
    site: &Site<'_>,
    attention: &program::Attention,
) -> Result<Box<dyn Kernel>, BindError> {
    use DataType::{Bfloat16, Double, Float, Float16};
    let elem = site.elem(0)?;
    for index in 0..3 {
        let other = site.elem(index)?;
        // Values may have another type.
        if !matches!(other, Float | Double | Float16 | Bfloat16) || index < 2 && other != elem {
            return site.unsupported_type(other);
        }
    }
    let count = |name: &str| {
        let given = site.int(name).unwrap_or(0);
        usize::try_from(given)
            .map_err(|_| BindError::Invalid(format!("attribute '{name}' is {given}")))
    };
    let limit = |name: &str| match site.int(name).unwrap_or(-1) {
        -1 => Ok(None),
        given => usize::try_from(given)
            .map(Some)
            .map_err(|_| BindError::Invalid(format!("attribute '{name}' is {given}"))),
    };
    let stage = match site.int("qk_matmul_output_mode").unwrap_or(0) {
        0 => Stage::Products,
        1 => Stage::Capped,
        2 => Stage::Masked,
        3 => Stage::Weights,
        other => {
            return Err(BindError::Invalid(format!(
                "attribute 'qk_matmul_output_mode' is {other}, not 0 to 3"
            )));
        }
    };
    Ok(Box::new(Attention {
        elem,
        value_elem: site.elem(2)?,
        packed: [count("q_num_heads")?, count("kv_num_heads")?],
        scale: site.float("scale").map(f64::from),
        softcap: f64::from(site.float("softcap").unwrap_or(0.0)),
        is_causal: site.int("is_causal") == Some(1),
        limits: [limit("left_window_size")?, limit("right_window_size")?],
        stage,
        blind_is_zero: site.int(BLIND_IS_NAN) != Some(1),
        order: attention.permute.clone(),
        is_joined: attention.is_joined,
    }))
}

/// Dimensions and strides of an operand with an axis for heads.
#[derive(Clone, Copy, Debug)]
struct HeadsLayout {
    /// Batch, heads, rows and features.
    dims: [usize; 4],
    strides: [usize; 4],
}

impl HeadsLayout {
    fn new(view: &TensorView<'_>, packed: usize, name: &str) -> Result<HeadsLayout, KernelError> {
        let Ok(strides) = view
            .strides()
            .iter()
            .map(|stride| usize::try_from(*stride))
            .collect::<Result<Dims, _>>()
        else {
            fail!("{name} is read backwards");
        };
        match (view.dims(), &strides[..]) {
            (&[b, h, r, f], &[sb, sh, sr, sf]) => {
                Ok(HeadsLayout { dims: [b, h, r, f], strides: [sb, sh, sr, sf] })
            }
            (&[b, r, f], &[sb, sr, sf]) if packed > 0 && f % packed == 0 => Ok(HeadsLayout {
                dims: [b, packed, r, f / packed],
                strides: [sb, f / packed * sf, sr, sf],
            }),
            (&[_, _, f], _) => {
                fail!("the last axis of {name}, {f}, cannot be divided into {packed} heads")
            }
            (other, _) => fail!("{name} has dimensions {other:?}, but must have rank 3 or 4"),
        }
    }

    fn dense(dims: [usize; 4]) -> HeadsLayout {
        let strides = shape::strides(&dims);
        HeadsLayout { dims, strides: std::array::from_fn(|axis| strides[axis] as usize) }
    }
}

/// Elements with their form.
struct HeadsElements<'a, T> {
    data: Contents<'a, T>,
    form: HeadsLayout,
}

impl<T: Pod> HeadsElements<'_, T> {
    fn heads(&self) -> Heads<'_, T> {
        Heads { data: &self.data, strides: self.form.strides }
    }
}

/// Loads operands: in place if they have the kernel's type, else converted.
trait Operands: Element + Math {
    fn load<'a>(
        call: &Call<'_>,
        view: &TensorView<'a>,
    ) -> Result<(Contents<'a, Self>, bool), KernelError>;
}

impl Operands for f32 {
    fn load<'a>(
        call: &Call<'_>,
        view: &TensorView<'a>,
    ) -> Result<(Contents<'a, f32>, bool), KernelError> {
        if view.data_type() == DataType::Float {
            let data = view.data_slice::<f32>()?;
            return Ok((Contents::Borrowed(data.get(view.offset()..).unwrap_or_default()), true));
        }
        Ok((Contents::Made(widen(call, view)?), false))
    }
}

impl Operands for f64 {
    fn load<'a>(
        call: &Call<'_>,
        view: &TensorView<'a>,
    ) -> Result<(Contents<'a, f64>, bool), KernelError> {
        if view.data_type() == DataType::Double {
            let data = view.data_slice::<f64>()?;
            return Ok((Contents::Borrowed(data.get(view.offset()..).unwrap_or_default()), true));
        }
        Ok((Contents::Made(doubles(call, view)?), false))
    }
}

fn doubles(call: &Call<'_>, view: &TensorView<'_>) -> Result<Scratch<f64>, KernelError> {
    let mut wide = call.scratch::<f64>(view.len())?;
    let bytes = moves::dense(call, view)?;
    let (to, options) = (bytemuck::cast_slice_mut(&mut wide), CastOptions::default());
    cast_slices(view.data_type(), &bytes, DataType::Double, to, view.len(), options)?;
    Ok(wide)
}

fn part<'a, T: Operands>(
    call: &Call<'a>,
    index: usize,
    packed: usize,
    name: &str,
) -> Result<HeadsElements<'a, T>, KernelError> {
    let view = call.tensor(index)?;
    let (data, as_it_lies) = T::load(call, view)?;
    let mut form = HeadsLayout::new(view, packed, name)?;
    if !as_it_lies {
        // Converted elements are dense.
        let dense = TensorView::from_slice(view.dims(), &data)?;
        form = HeadsLayout::new(&dense, packed, name)?;
    }
    Ok(HeadsElements { data, form })
}

/// Appends new keys or values to cached ones, into dense memory.
fn append<T: Operands>(
    call: &Call<'_>,
    past: &HeadsElements<'_, T>,
    new: &HeadsElements<'_, T>,
) -> Result<HeadsElements<'static, T>, KernelError> {
    let ([b, h, old, f], [b2, h2, rows, f2]) = (past.form.dims, new.form.dims);
    if [b, h, f] != [b2, h2, f2] {
        fail!("{:?} of earlier calls does not match {:?}", past.form.dims, new.form.dims);
    }
    let form = HeadsLayout::dense([b, h, old + rows, f]);
    let mut data = call.scratch::<T>(b * h * (old + rows) * f)?;
    for (part, start) in [(past, 0), (new, old)] {
        let [_, _, rows, _] = part.form.dims;
        for index in 0..b * h * rows {
            let (row, head, batch) = (index % rows, index / rows % h, index / rows / h);
            let at = |form: &HeadsLayout, row: usize| {
                batch * form.strides[0] + head * form.strides[1] + row * form.strides[2]
            };
            let (from, to) = (at(&part.form, row), at(&form, start + row));
            for i in 0..f {
                data[to + i] = part.data[from + i * part.form.strides[3]];
            }
        }
    }
    Ok(HeadsElements { data: Contents::Made(data), form })
}

/// Mask by batch, head, query and key.
enum Hidden<'a, T> {
    Add(HeadsElements<'a, T>),
    Keep(HeadsElements<'a, u8>),
}

/// Function that computes one attention into memory with the given strides.
type Compute<T> = fn(&Exec<'_>, &Job<'_, T>, HeadsMut<'_, T>) -> Result<(), Ended>;

impl Attention {
    fn run_as<T: Operands>(
        &self,
        call: &mut Call<'_>,
        compute: Compute<T>,
    ) -> Result<(), KernelError> {
        let q = part::<T>(call, 0, self.packed[0], "Q")?;
        let (mut k, mut v) =
            (part::<T>(call, 1, self.packed[1], "K")?, part::<T>(call, 2, self.packed[1], "V")?);
        let mut past = 0;
        if self.is_joined {
            past = call.tensor(PAST_KEY)?.dims().get(2).copied().unwrap_or(0);
        } else if call.has_input(PAST_KEY) {
            let old = part::<T>(call, PAST_KEY, 0, "past_key")?;
            past = old.form.dims[2];
            k = append(call, &old, &k)?;
        }
        if !self.is_joined && call.has_input(PAST_VALUE) {
            v = append(call, &part::<T>(call, PAST_VALUE, 0, "past_value")?, &v)?;
        }
        let sizes = sizes(q.form.dims, k.form.dims, v.form.dims)?;
        let mask = mask::<T>(call, sizes)?;
        for (index, part, elem) in
            [(PRESENT_KEY, &k, self.elem), (PRESENT_VALUE, &v, self.value_elem)]
        {
            if call.has_output(index) {
                let elements = copy_dense(call, part)?;
                write_output(call, index, elem, &part.form.dims, &elements)?;
            }
        }
        let job = Job {
            sizes,
            q: q.heads(),
            k: k.heads(),
            v: v.heads(),
            mask: mask.as_ref().map(|mask| match mask {
                Hidden::Add(part) => Mask::Add(part.heads()),
                Hidden::Keep(part) => Mask::Keep(part.heads()),
            }),
            scale: self.scale.unwrap_or(1.0 / (sizes.features as f64).sqrt()),
            softcap: self.softcap,
            window: self.window(past as isize),
            blind_is_zero: self.blind_is_zero,
        };
        let jobs = self.split_by_length(call, job)?;
        let (dims, strides) = self.output(sizes, call.tensor(0)?.rank());
        let exec = call.exec;
        let row = sizes.heads * sizes.queries * sizes.keys;
        let has_scores = call.has_output(SCORES);
        let batch = if has_scores { sizes.batch } else { 0 };
        let mut scores = call.scratch::<T>(batch.saturating_mul(row))?;
        let mut fill = |y: &mut [T]| -> Result<(), Ended> {
            for (index, job) in jobs.iter().enumerate() {
                let data = y.get_mut(index * strides[0]..).unwrap_or_default();
                let y = HeadsMut { data, strides };
                if has_scores {
                    // A job with fewer keys leaves the rest of each row unchanged.
                    let scores = &mut scores[index * row..];
                    let wanted = StageScores { stage: self.stage, scores, stride: sizes.keys };
                    attention_plain(job, y, Some(wanted));
                } else {
                    compute(exec, job, y)?;
                }
            }
            Ok(())
        };
        if T::DATA_TYPE == self.elem {
            fill(call.output_slice::<T>(0, &dims)?)?;
        } else {
            let mut y = call.scratch::<T>(dims.iter().product())?;
            fill(&mut y)?;
            write_output(call, 0, self.elem, &dims, &y)?;
        }
        if has_scores {
            let dims = [sizes.batch, sizes.heads, sizes.queries, sizes.keys];
            write_output(call, SCORES, self.elem, &dims, &scores)?;
        }
        Ok(())
    }

    /// Returns the range of keys that a query attends to, relative to its own number, after
    /// `outside` keys of earlier calls.
    fn window(&self, outside: isize) -> (isize, isize) {
        let [left, right] = self.limits;
        let reach = |keys: usize| isize::try_from(keys).unwrap_or(isize::MAX);
        let first = left.map_or(NO_WINDOW.0, |keys| outside.saturating_sub(reach(keys)));
        let last = right.map_or(NO_WINDOW.1, |keys| outside.saturating_add(reach(keys)));
        (first, if self.is_causal { last.min(outside) } else { last })
    }

    /// Splits a job by batch element if the cache is external, as each element then has a length of
    /// its own.
    fn split_by_length<'j, T: Operands>(
        &self,
        call: &Call<'_>,
        job: Job<'j, T>,
    ) -> Result<SmallVec<[Job<'j, T>; 1]>, KernelError> {
        if !call.has_input(VALID_KEYS) {
            return Ok(smallvec![job]);
        }
        let (valid, sizes) = (call.ints(VALID_KEYS)?, job.sizes);
        if valid.len() != sizes.batch || valid.iter().any(|count| *count < 0) {
            fail!("nonpad_kv_seqlen is {valid:?}, which does not match a batch of {}", sizes.batch);
        }
        let one = |(index, count): (usize, &i64)| {
            let (mut one, count) = (job, usize::try_from(*count).unwrap_or(0).min(sizes.keys));
            one.sizes.batch = 1;
            one.sizes.keys = count;
            if !call.has_input(PAST_KEY) {
                one.window = self.window(count as isize - sizes.queries as isize);
            }
            one.q.data = from(one.q.data, index * one.q.strides[0]);
            one.k.data = from(one.k.data, index * one.k.strides[0]);
            one.v.data = from(one.v.data, index * one.v.strides[0]);
            match &mut one.mask {
                Some(Mask::Add(mask)) => mask.data = from(mask.data, index * mask.strides[0]),
                Some(Mask::Keep(mask)) => mask.data = from(mask.data, index * mask.strides[0]),
                None => {}
            }
            one
        };
        Ok(valid.iter().enumerate().map(one).collect())
    }

    /// Returns the dimensions of the output, and its strides by batch, head, query and feature.
    fn output(&self, sizes: Sizes, rank: usize) -> (Dims, [usize; 4]) {
        let Sizes { batch, heads, queries, value_features, .. } = sizes;
        if rank == 3 {
            let packed = heads * value_features;
            let strides = [queries * packed, value_features, packed, 1];
            return (Dims::from_slice(&[batch, queries, packed]), strides);
        }
        let dims = [batch, heads, queries, value_features];
        let order = self.order.clone().unwrap_or_else(|| (0..4).collect());
        let transposed: Dims = order.iter().map(|axis| dims[*axis]).collect();
        let mut strides = [0; 4];
        for (axis, stride) in order.iter().zip(shape::strides(&transposed)) {
            strides[*axis] = stride as usize;
        }
        (transposed, strides)
    }
}

fn from<T>(data: &[T], start: usize) -> &[T] {
    data.get(start..).unwrap_or_default()
}

fn sizes(q: [usize; 4], k: [usize; 4], v: [usize; 4]) -> Result<Sizes, KernelError> {
    let ([batch, heads, queries, features], [k_batch, shared_heads, keys, k_features]) = (q, k);
    let [v_batch, v_heads, v_keys, value_features] = v;
    let same = [batch, batch, shared_heads, keys, features]
        == [k_batch, v_batch, v_heads, v_keys, k_features];
    let shares = heads == 0 || shared_heads > 0 && heads % shared_heads == 0;
    if !same || !shares {
        fail!(
            "queries {q:?}, keys {k:?} and values {v:?} (batch, heads, rows, features) do not match"
        );
    }
    Ok(Sizes { batch, heads, shared_heads, queries, keys, features, value_features })
}

/// Returns the mask, if there is one, broadcast to all scores. Keys beyond its columns are hidden.
fn mask<'a, T: Operands>(
    call: &Call<'a>,
    sizes: Sizes,
) -> Result<Option<Hidden<'a, T>>, KernelError> {
    let Some(view) = call.maybe_tensor(MASK)? else {
        return Ok(None);
    };
    let all = [sizes.batch, sizes.heads, sizes.queries, sizes.keys];
    let broadcast = |dims: &[usize], strides: &[isize]| -> Result<HeadsLayout, KernelError> {
        let Some(steps) = Layout { offset: 0, strides: strides.into() }.broadcast(dims, &all)
        else {
            fail!("the mask has dimensions {dims:?}, which do not broadcast to the scores {all:?}");
        };
        let strides = std::array::from_fn(|axis| steps.strides[axis] as usize);
        Ok(HeadsLayout { dims: all, strides })
    };
    let dims = view.dims();
    let (columns, rows) =
        dims.split_last().map_or((1, 1), |(columns, outer)| (*columns, outer.iter().product()));
    let is_short = !dims.is_empty() && columns < sizes.keys;
    if view.data_type() == DataType::Bool {
        let bytes = moves::dense(call, view)?;
        let (dims, data) = if is_short {
            let long = extend_rows(call, &bytes, rows, columns, sizes.keys, 0)?;
            (with_columns(dims, sizes.keys), Contents::Made(long))
        } else {
            (dims.into(), bytes)
        };
        let form = broadcast(&dims, &shape::strides(&dims))?;
        return Ok(Some(Hidden::Keep(HeadsElements { data, form })));
    }
    // A mask of another type or with fewer columns is copied, converted and extended.
    let bytes = moves::dense(call, view)?;
    let data = if view.data_type() == T::DATA_TYPE {
        match bytes {
            Contents::Borrowed(_) => Contents::Borrowed(call.slice::<T>(MASK)?),
            Contents::Made(bytes) => {
                let mut copy = call.scratch::<T>(view.len())?;
                bytemuck::cast_slice_mut::<T, u8>(&mut copy).copy_from_slice(&bytes);
                Contents::Made(copy)
            }
        }
    } else {
        let mut converted = call.scratch::<T>(view.len())?;
        let to = bytemuck::cast_slice_mut(&mut converted);
        let options = CastOptions::default();
        cast_slices(view.data_type(), &bytes, T::DATA_TYPE, to, view.len(), options)?;
        Contents::Made(converted)
    };
    let (dims, data) = if is_short {
        let minus_inf = T::from_f64(f64::NEG_INFINITY);
        let long = extend_rows(call, &data, rows, columns, sizes.keys, minus_inf)?;
        (with_columns(dims, sizes.keys), Contents::Made(long))
    } else {
        (dims.into(), data)
    };
    let form = broadcast(&dims, &shape::strides(&dims))?;
    Ok(Some(Hidden::Add(HeadsElements { data, form })))
}

fn with_columns(dims: &[usize], keys: usize) -> Dims {
    let mut widened = Dims::from(dims);
    if let Some(last) = widened.last_mut() {
        *last = keys;
    }
    widened
}

/// Extends rows to `keys` elements, at least 1.
fn extend_rows<T: Pod>(
    call: &Call<'_>,
    data: &[T],
    rows: usize,
    columns: usize,
    keys: usize,
    with: T,
) -> Result<Scratch<T>, KernelError> {
    let mut long = call.scratch::<T>(rows.saturating_mul(keys))?;
    for (index, long) in long.chunks_exact_mut(keys).enumerate() {
        let (given, rest) = long.split_at_mut(columns);
        given.copy_from_slice(&data[index * columns..][..columns]);
        rest.fill(with);
    }
    Ok(long)
}

/// Copies all elements in row-major order.
fn copy_dense<T: Operands>(
    call: &Call<'_>,
    part: &HeadsElements<'_, T>,
) -> Result<Scratch<T>, KernelError> {
    let ([b, h, rows, f], strides) = (part.form.dims, part.form.strides);
    let mut elements = call.scratch::<T>(b * h * rows * f)?;
    for (index, to) in elements.chunks_mut(f.max(1)).enumerate() {
        let (row, head, batch) = (index % rows, index / rows % h, index / rows / h);
        let start = batch * strides[0] + head * strides[1] + row * strides[2];
        for (i, to) in to.iter_mut().enumerate() {
            *to = part.data[start + i * strides[3]];
        }
    }
    Ok(elements)
}

/// Writes an output that was computed in other memory.
fn write_output<T: Operands>(
    call: &mut Call<'_>,
    index: usize,
    elem: DataType,
    dims: &[usize],
    elements: &[T],
) -> Result<(), KernelError> {
    let mut output = call.output(index, elem, dims)?;
    let (from, len) = (bytemuck::cast_slice(elements), elements.len());
    let to = output.bytes_mut();
    Ok(cast_slices(T::DATA_TYPE, from, elem, to, len, CastOptions::default())?)
}

impl Kernel for Attention {
    fn memory(&self) -> MemoryRules {
        const STRIDED: Inputs = Inputs::from_positions(&[0, 1, 2, MASK, PAST_KEY, PAST_VALUE]);
        MemoryRules { strided: STRIDED, ..MemoryRules::default() }
    }

    fn describe(&self) -> String {
        let heads = if self.packed[0] > 0 { "packed heads" } else { "heads" };
        let order = match &self.order {
            Some(order) => format!(", output in the order {order:?}"),
            None => String::new(),
        };
        format!("tiled attention of {}, {heads}{order}", self.elem)
    }

    fn run(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match (self.elem, self.value_elem) {
            (DataType::Double, _) | (_, DataType::Double) => {
                self.run_as::<f64>(call, attention_doubles)
            }
            _ => self.run_as::<f32>(call, attention),
        }
    }
}
