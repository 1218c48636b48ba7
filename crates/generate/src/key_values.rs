//! Keys and values of earlier positions: outputs of a run of a decoder, and inputs of the next one.
//! A [`SessionState`] keeps them; they are found by names and types.

use sardonyx::run::{SessionState, StatePair};
use sardonyx::{DataType, Dim, Port, Session, Tensor, Type, Value};

use crate::config::Config;
use crate::error::Error;

/// Meaning of an axis of a state tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    /// Members of the batch.
    Batch,
    /// Positions: empty before the first run.
    Length,
    /// Axis of a size that does not change.
    Fixed(usize),
}

/// Input and the output that becomes its value in the next run.
#[derive(Debug, Clone)]
struct DecoderState {
    past: String,
    present: String,
    data_type: DataType,
    axes: Vec<Axis>,
}

/// Pairs of inputs and outputs of a decoder that are its state.
#[derive(Debug, Clone, Default)]
pub(crate) struct StateLayout {
    pairs: Vec<DecoderState>,
}

/// Prefixes of inputs that are state, and what their outputs have in place of them.
const PREFIXES: [(&str, &[&str]); 3] = [
    ("past_key_values", &["present", "present_key_values"]),
    ("past", &["present"]),
    ("cache_in", &["cache_out"]),
];

impl StateLayout {
    /// Finds the state of a model with these inputs and outputs. `names` are the patterns of
    /// `genai_config.json`.
    ///
    /// # Errors
    ///
    /// If an input is named like a state, but has no output or sizes that are not known.
    pub(crate) fn find(
        inputs: &[Port],
        outputs: &[Port],
        config: &Config,
    ) -> Result<StateLayout, Error> {
        let mut pairs = Vec::new();
        for input in inputs {
            if input.name() == "past_sequence_length" {
                continue;
            }
            let Some(present) = find_present(input.name(), outputs, config) else {
                continue;
            };
            let (data_type, axes) = find_axes(input, config)?;
            pairs.push(DecoderState { past: input.name().to_string(), present, data_type, axes });
        }
        Ok(StateLayout { pairs })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Whether the input called `name` is a state.
    pub(crate) fn has_input(&self, name: &str) -> bool {
        self.pairs.iter().any(|pair| pair.past == name)
    }

    /// Whether states can be cut back to fewer positions: each has an axis of positions.
    pub(crate) fn can_truncate(&self) -> bool {
        let has_length = |pair: &DecoderState| pair.axes.contains(&Axis::Length);
        !self.pairs.is_empty() && self.pairs.iter().all(has_length)
    }

    /// Creates the state of a batch before its first run; `None` if the model has none.
    pub(crate) fn make_state(
        &self,
        session: &Session,
        batch: usize,
    ) -> Result<Option<SessionState>, Error> {
        if self.is_empty() {
            return Ok(None);
        }
        let pairs = self.pairs.iter().map(|pair| {
            let state = StatePair::new(&pair.past, &pair.present).first_dims(pair.dims(batch));
            pair.axes.iter().enumerate().fold(state, |state, (index, axis)| match axis {
                Axis::Length => state.axis(index),
                Axis::Batch => state.batch_axis(index),
                Axis::Fixed(_) => state,
            })
        });
        Ok(Some(session.state().pairs(pairs).build()?))
    }

    /// Creates values without positions for the inputs that are state.
    pub(crate) fn make_empty(&self, batch: usize) -> Result<Vec<(String, Value)>, Error> {
        let tensors = self.pairs.iter().map(|pair| {
            let tensor = Tensor::zeros(pair.data_type, pair.dims(batch))?;
            Ok((pair.past.clone(), tensor.into()))
        });
        tensors.collect()
    }

    /// Returns the size of the state of one position of one sequence, in bytes.
    pub(crate) fn bytes_per_token(&self) -> usize {
        let sizes =
            self.pairs.iter().filter(|pair| pair.axes.contains(&Axis::Length)).map(|pair| {
                let fixed = pair.axes.iter().map(|axis| match axis {
                    Axis::Fixed(size) => *size,
                    Axis::Batch | Axis::Length => 1,
                });
                pair.data_type.storage_bytes(fixed.fold(1, usize::saturating_mul)).unwrap_or(0)
            });
        sizes.fold(0, usize::saturating_add)
    }
}

impl DecoderState {
    /// Returns the dimensions of the input before the first run.
    fn dims(&self, batch: usize) -> Vec<usize> {
        let sizes = self.axes.iter().map(|axis| match axis {
            Axis::Batch => batch,
            Axis::Length => 0,
            Axis::Fixed(size) => *size,
        });
        sizes.collect()
    }
}

/// Returns the name of the output that is the next value of the input called `past`.
fn find_present(past: &str, outputs: &[Port], config: &Config) -> Option<String> {
    let exists = |name: &String| outputs.iter().any(|output| output.name() == name);
    let patterns = config.genai.iter().flat_map(|genai| {
        ["key_", "value_", ""].map(|kind| {
            let input = genai.names.get(&format!("past_{kind}names"));
            let output = genai.names.get(&format!("present_{kind}names"));
            input.zip(output)
        })
    });
    for (input, output) in patterns.flatten() {
        let number = match_pattern(input, past);
        let present = number.map(|number| output.replace("%d", number)).filter(exists);
        if present.is_some() {
            return present;
        }
    }
    for (prefix, replacements) in PREFIXES {
        if let Some(rest) = past.strip_prefix(prefix) {
            let mut names = replacements.iter().map(|replacement| format!("{replacement}{rest}"));
            let present = names.find(exists);
            if present.is_some() {
                return present;
            }
        }
    }
    None
}

/// Returns the number that `%d` of the pattern stands for in `name`.
fn match_pattern<'n>(pattern: &str, name: &'n str) -> Option<&'n str> {
    let (before, after) = pattern.split_once("%d")?;
    let number = name.strip_prefix(before)?.strip_suffix(after)?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

/// Returns the element type of a state, and what its axes mean.
fn find_axes(input: &Port, config: &Config) -> Result<(DataType, Vec<Axis>), Error> {
    let refuse = |why: &str| {
        Error::refusal(format!("state `{}`: {why}", input.name())).with_help(
            "export the model with named dimensions of batch and length, such as optimum does",
        )
    };
    let ty = input.ty();
    let (Some(data_type), Some(shape)) = (ty.and_then(Type::elem), ty.and_then(Type::shape)) else {
        return Err(refuse("its type has no shape"));
    };
    let rank = shape.len();
    let open = shape.iter().filter(|dim| dim.size().is_none()).count();
    let mut axes = Vec::new();
    for (index, dim) in shape.iter().enumerate() {
        if let Some(size) = dim.size() {
            axes.push(Axis::Fixed(size));
            continue;
        }
        let name = dim.to_string();
        let is_product = name.contains('*');
        let axis = if is_product {
            return Err(refuse("batch and heads share an axis"));
        } else if name.contains("batch") {
            Axis::Batch
        } else if ["past", "seq", "len", "total"].iter().any(|part| name.contains(part)) {
            Axis::Length
        } else {
            match (rank, index, open) {
                (_, 0, _) => Axis::Batch,
                // [batch, heads, positions, head size]
                (4, 1, _) => Axis::Fixed(config.key_value_heads.ok_or_else(|| refuse("heads"))?),
                (4, 3, 3..) => Axis::Fixed(config.head_size.ok_or_else(|| refuse("head size"))?),
                _ => Axis::Length,
            }
        };
        axes.push(axis);
    }
    let count = |wanted: Axis| axes.iter().filter(|axis| **axis == wanted).count();
    if count(Axis::Length) > 1 || count(Axis::Batch) > 1 {
        let dims: Vec<String> = shape.iter().map(Dim::to_string).collect();
        return Err(refuse(&format!("cannot tell positions from heads in [{}]", dims.join(", "))));
    }
    // Models exported for one sequence have a batch of 1.
    if count(Axis::Batch) == 0 && axes.first() == Some(&Axis::Fixed(1)) {
        axes[0] = Axis::Batch;
    }
    Ok((data_type, axes))
}

#[cfg(test)]
mod tests {
    use super::{Axis, StateLayout, find_axes, match_pattern};
    use crate::config::Config;
    use sardonyx::{DataType, Dim, Port, Type};

    fn port(name: &str, dims: &[&str]) -> Port {
        let dims: Vec<Dim> = dims.iter().map(|dim| Dim::parse(dim)).collect();
        Port::new(name.to_string(), Some(Type::tensor(DataType::Float, dims)), true)
    }

    #[test]
    fn pairs_are_found_by_name() {
        let rows = [
            ("past_key_values.0.key", "present.0.key"),
            ("past_key_values.0.key", "present_key_values.0.key"),
            ("past_0", "present_0"),
            ("past_conv.3", "present_conv.3"),
        ];
        for (past, present) in rows {
            let inputs = [port("input_ids", &["b", "s"]), port(past, &["b", "2", "p", "8"])];
            let outputs = [port("logits", &["b", "s", "9"]), port(present, &["b", "2", "t", "8"])];
            let layout = StateLayout::find(&inputs, &outputs, &Config::default()).unwrap();
            assert!(layout.has_input(past), "{past}");
            assert_eq!(layout.bytes_per_token(), 64);
        }
        assert_eq!(match_pattern("kv.%d.k", "kv.12.k"), Some("12"));
        assert_eq!(match_pattern("kv.%d.k", "kv..k"), None);
    }

    #[test]
    fn axes_are_told_by_names_and_places() {
        let config = Config { key_value_heads: Some(2), head_size: Some(8), ..Config::default() };
        use Axis::{Batch, Fixed, Length};
        let rows: [(&[&str], Option<&[Axis]>); 6] = [
            (
                &["batch_size", "2", "past_sequence_length", "8"],
                Some(&[Batch, Fixed(2), Length, Fixed(8)]),
            ),
            (&["b", "h", "p", "d"], Some(&[Batch, Fixed(2), Length, Fixed(8)])),
            (&["1", "2", "p", "8"], Some(&[Batch, Fixed(2), Length, Fixed(8)])),
            (
                &["2", "batch", "2", "past", "8"],
                Some(&[Fixed(2), Batch, Fixed(2), Length, Fixed(8)]),
            ),
            (&["b", "p", "16"], Some(&[Batch, Length, Fixed(16)])),
            (&["batch_size*heads", "8", "past"], None),
        ];
        for (dims, expected) in rows {
            let axes = find_axes(&port("past", dims), &config).ok().map(|(_, axes)| axes);
            assert_eq!(axes.as_deref(), expected, "{dims:?}");
        }
    }
}
