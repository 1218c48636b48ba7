//! `LinearAttention` of ONNX Runtime: the standard's operator, also with fewer query heads than
//! states, and with a window of states.

use sardonyx_model::{Dim, Shape};
use sardonyx_tensor::DataType::{Bfloat16, Float, Float16};

use super::DOMAIN;
use super::mask::{heads, list};
use super::window::{StateWindow, state_window};
use crate::def::OpDef;
use crate::facts::{float, input, int, output, string, types};
use crate::function::{Expand, vector};
use crate::infer::{Infer, InferError};
use crate::nn::attention::{check_factors, check_rule};
use crate::rules::shared_dim;
use crate::typeset::TypeSet;

const T: TypeSet = TypeSet::tensors(&[Float, Float16, Bfloat16]);

pub(crate) static LINEAR_ATTENTION: OpDef = OpDef::new("LinearAttention")
    .domain(DOMAIN)
    .about(
        "The standard's `LinearAttention`, where also several states may share a query head. With \
         a `state_window` of `W`, states have a first axis that holds those after each of the \
         last `W` steps, the newest last, and zeros where there was no such step.",
    )
    .since(
        1,
        &[
            input("query", "T"),
            input("key", "T"),
            input("value", "T"),
            input("past_state", "S").optional(),
            input("decay", "T").optional(),
            input("beta", "T").optional(),
            output("output", "T"),
            output("present_state", "S"),
            int("chunk_size").or(64),
            int("kv_num_heads").required(),
            int("q_num_heads").required(),
            float("scale").or_float(0.0),
            int("state_window").or(0),
            string("update_rule").or_word("gated_delta"),
            types("T", T),
            types("S", T),
        ],
    )
    .infer(infer)
    .body_or_reason(1, body)
    .unknown_cost();

const Q: usize = 0;
const K: usize = 1;
const V: usize = 2;
const PAST: usize = 3;
const DECAY: usize = 4;
const BETA: usize = 5;

fn infer(cx: &mut Infer<'_>) -> Result<(), InferError> {
    check_rule(cx)?;
    let [heads, key_heads] = ["q_num_heads", "kv_num_heads"].map(|name| match cx.int(name) {
        Some(heads @ 1..) => Ok(heads),
        Some(heads) => cx.fail(format_args!("{name} must be positive, not {heads}")),
        None => cx.fail(format_args!("attribute {name} is missing")),
    });
    let (heads, key_heads) = (heads?, key_heads?);
    if heads % key_heads != 0 && key_heads % heads != 0 {
        return cx.fail(format_args!(
            "{heads} query heads and {key_heads} key heads cannot share each other"
        ));
    }
    let window = state_window(cx.int("state_window")).or_else(|why| cx.fail(why))?;
    let first = usize::from(window.is_some());
    for input in [Q, K, V, DECAY, BETA] {
        cx.demand_rank(input, 3)?;
    }
    cx.demand_rank(PAST, 4 + first)?;
    let batch = [(Q, 0), (K, 0), (V, 0), (PAST, first), (DECAY, 0), (BETA, 0)];
    let batch = shared_dim(cx, "elements of the batch", &batch)?;
    let steps = shared_dim(cx, "steps", &[Q, K, V, DECAY, BETA].map(|input| (input, 1)))?;
    let size = |input: usize, heads: i64| {
        Ok(shared_dim(cx, "heads", &[(input, 2)])?.floor_div(&Dim::Known(heads)))
    };
    let past = |axis: usize| shared_dim(cx, "the size of a head", &[(PAST, first + axis)]);
    let what = "sizes of a head of queries and of keys";
    let key_size = cx.same_dim(&size(K, key_heads)?, &size(Q, heads)?, what)?;
    let what = "sizes of a head and of the state";
    let key_size = cx.same_dim(&key_size, &past(2)?, what)?;
    let value_size = cx.same_dim(&size(V, key_heads)?, &past(3)?, what)?;
    check_factors(cx, key_heads, &key_size)?;
    let width = value_size.mul(&Dim::Known(heads.max(key_heads)));
    cx.set_tensor(0, cx.elem(Q), Some(Shape::from_iter([batch.clone(), steps, width])));
    let elem = if cx.has_input(PAST) { cx.elem(PAST) } else { cx.elem(Q) };
    let state = [batch, Dim::Known(key_heads), key_size, value_size];
    let state = window.map(Dim::Known).into_iter().chain(state).collect();
    cx.set_tensor(1, elem, Some(state));
    Ok(())
}

fn body(cx: &Expand<'_>) -> Result<String, String> {
    let (heads, key_heads) = (heads(cx, "q_num_heads")?, heads(cx, "kv_num_heads")?);
    let (mut text, query_heads) = if key_heads > heads {
        if key_heads % heads != 0 {
            return Err(format!("{key_heads} key heads cannot share {heads} query heads"));
        }
        (repeat_queries(heads, key_heads), key_heads)
    } else {
        ("all_queries = Identity (query)\n".to_string(), heads)
    };
    let Some(window) = state_window(cx.int("state_window"))? else {
        let names = Step {
            query: "all_queries",
            key: "key",
            value: "value",
            past: cx.has_input(PAST).then_some("past_state"),
            decay: cx.has_input(DECAY).then_some("decay"),
            beta: cx.has_input(BETA).then_some("beta"),
        };
        return Ok(text + &names.call(query_heads, "output", "present_state"));
    };
    text += &vector("one", &[1]);
    text += &vector("zero", &[0]);
    text += &build_window(cx, window, query_heads);
    Ok(text)
}

/// Builds the nodes that repeat each query head for the states that share it.
fn repeat_queries(heads: i64, key_heads: i64) -> String {
    let copies = key_heads / heads;
    vector("query_sizes", &[0, 0, heads, 1, -1])
        + &vector("copy_sizes", &[1, 1, 1, copies, 1])
        + &vector("width", &[-1])
        + "places = Shape <start = 0, end = 2> (query)
        query_heads = Reshape (query, query_sizes)
        copied = Expand (query_heads, copy_sizes)
        packed_sizes = Concat <axis = 0> (places, width)
        all_queries = Reshape (copied, packed_sizes)\n"
}

/// Inputs of a call of the standard's operator.
struct Step<'a> {
    query: &'a str,
    key: &'a str,
    value: &'a str,
    past: Option<&'a str>,
    decay: Option<&'a str>,
    beta: Option<&'a str>,
}

impl Step<'_> {
    fn call(&self, query_heads: i64, output: &str, state: &str) -> String {
        let Step { query, key, value, past, decay, beta } = *self;
        let inputs = list(&[Some(query), Some(key), Some(value), past, decay, beta]);
        format!(
            "{output}, {state} = LinearAttention <
                chunk_size: int = @chunk_size,
                kv_num_heads: int = @kv_num_heads,
                q_num_heads = {query_heads},
                scale: float = @scale,
                update_rule: string = @update_rule
            > ({inputs})\n"
        )
    }
}

/// Builds the nodes for a window of states. As many steps of zeros as the window has come first:
/// they change no state and give each call at least one step. The first call goes up to the first
/// state of the window, the others have one step each.
fn build_window(cx: &Expand<'_>, window: i64, query_heads: i64) -> String {
    let operands = [
        Some(("all_queries", "q")),
        Some(("key", "k")),
        Some(("value", "v")),
        cx.has_input(DECAY).then_some(("decay", "g")),
        cx.has_input(BETA).then_some(("beta", "b")),
    ];
    let operands: Vec<(&str, &str)> = operands.into_iter().flatten().collect();
    let mut text = format!("zero_steps = Constant <value = int64[2] {{{window}, 0}}> ()\n");
    for (from, into) in &operands {
        text += &format!("{into} = Pad ({from}, zero_steps, \"\", one)\n");
    }
    text += "count = Shape <start = 1, end = 2> (query)\n";
    let mut state = if cx.has_input(PAST) {
        text += &format!(
            "newest = Constant <value = int64 {{{}}}> ()
            before_0 = Gather <axis = 0> (past_state, newest)\n",
            window - 1
        );
        Some("before_0".to_string())
    } else {
        None
    };
    let mut outputs = Vec::new();
    for slot in 0..window {
        let begin = if slot == 0 { 0 } else { slot - window };
        let end = if slot == window - 1 { i64::MAX } else { slot - window + 1 };
        text += &vector(&format!("begin_{slot}"), &[begin]);
        text += &vector(&format!("end_{slot}"), &[end]);
        for (_, name) in &operands {
            text += &format!("{name}_{slot} = Slice ({name}, begin_{slot}, end_{slot}, one)\n");
        }
        let part = |name: &str| {
            let is_there = operands.iter().any(|(_, found)| *found == name);
            is_there.then(|| format!("{name}_{slot}"))
        };
        let [decay, beta] = ["g", "b"].map(part);
        let step = Step {
            query: &format!("q_{slot}"),
            key: &format!("k_{slot}"),
            value: &format!("v_{slot}"),
            past: state.as_deref(),
            decay: decay.as_deref(),
            beta: beta.as_deref(),
        };
        let names = [format!("output_{slot}"), format!("state_{slot}")];
        text += &step.call(query_heads, &names[0], &names[1]);
        let [output, after] = names;
        outputs.push(output);
        state = Some(after);
    }
    let states = |slot: i64, into: &str| format!("{into} = Identity (state_{slot})\n");
    text += &StateWindow { window, count: "count" }.text(&states);
    text += &format!("outputs = Concat <axis = 1> ({})\n", outputs.join(", "));
    text += &vector("first_step", &[window]);
    text + &vector("past_the_end", &[i64::MAX])
        + "output = Slice (outputs, first_step, past_the_end, one)\n"
}
