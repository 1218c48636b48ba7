//! Attributes of recurrent layers.

use sardonyx_kernels::elementwise::Unary;
use sardonyx_kernels::recurrent::Gate;
use sardonyx_ops::AttrValue;
use smallvec::SmallVec;

use crate::error::BindError;
use crate::kernel::Site;

/// Kind of layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CellKind {
    Rnn,
    Gru { linear_before_reset: bool },
    Lstm { input_forget: bool },
}

/// Direction of a pass over the sequences.
#[derive(Debug, PartialEq)]
pub(super) struct Direction {
    pub(super) backwards: bool,
    pub(super) functions: SmallVec<[Gate; 3]>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) kind: CellKind,
    pub(super) directions: SmallVec<[Direction; 2]>,
    pub(super) clip: Option<f32>,
    pub(super) batch_first: bool,
    pub(super) hidden_size: Option<i64>,
}

impl CellKind {
    pub(super) fn gates(self) -> usize {
        match self {
            CellKind::Rnn => 1,
            CellKind::Gru { .. } => 3,
            CellKind::Lstm { .. } => 4,
        }
    }

    /// Returns the numbers of consecutive gates that share a product with a state.
    pub(super) fn products(self) -> &'static [usize] {
        match self {
            CellKind::Rnn => &[1],
            CellKind::Gru { linear_before_reset: true } => &[3],
            CellKind::Gru { linear_before_reset: false } => &[2, 1],
            CellKind::Lstm { .. } => &[4],
        }
    }

    /// Returns the default activations of a direction.
    fn defaults(self) -> &'static [&'static str] {
        match self {
            CellKind::Rnn => &["Tanh"],
            CellKind::Gru { .. } => &["Sigmoid", "Tanh"],
            CellKind::Lstm { .. } => &["Sigmoid", "Tanh", "Tanh"],
        }
    }
}

impl Settings {
    pub(super) fn new(site: &Site<'_>, kind: CellKind) -> Result<Settings, BindError> {
        let direction = site.string("direction").unwrap_or_default();
        let ways: &[bool] = match direction.as_str() {
            "forward" => &[false],
            "reverse" => &[true],
            "bidirectional" => &[false, true],
            other => {
                return Err(BindError::Invalid(format!(
                    "attribute 'direction' is '{other}', not forward, reverse or bidirectional"
                )));
            }
        };
        let clip = site.float("clip");
        if let Some(clip) = clip.filter(|clip| clip.is_nan() || *clip <= 0.0) {
            return Err(BindError::Invalid(format!(
                "attribute 'clip' is {clip}, but must be positive"
            )));
        }
        let batch_first = match site.int("layout").unwrap_or(0) {
            0 => false,
            1 => true,
            other => {
                return Err(BindError::Invalid(format!(
                    "attribute 'layout' is {other}, not 0 or 1"
                )));
            }
        };
        let functions = functions(site, kind, ways.len())?;
        let of_one = kind.defaults().len();
        let directions = ways.iter().zip(functions.chunks(of_one)).map(|(backwards, functions)| {
            Direction { backwards: *backwards, functions: functions.into() }
        });
        let directions = directions.collect();
        Ok(Settings { kind, directions, clip, batch_first, hidden_size: site.int("hidden_size") })
    }
}

/// Returns the activations of all directions.
fn functions(
    site: &Site<'_>,
    kind: CellKind,
    directions: usize,
) -> Result<SmallVec<[Gate; 6]>, BindError> {
    let given = match site.attributes.get("activations") {
        Some(AttrValue::Strings(names)) => names,
        _ => Vec::new(),
    };
    let names: SmallVec<[String; 6]> = if given.is_empty() {
        let all = std::iter::repeat_n(kind.defaults(), directions).flatten();
        all.map(|name| (*name).to_string()).collect()
    } else {
        given.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
    };
    let of_one = kind.defaults().len();
    let wanted = directions * of_one;
    // RNN lists two functions by default, also for a single direction.
    if names.len() != wanted && names.len() != 2 * of_one {
        return Err(BindError::Invalid(format!(
            "attribute 'activations' has {} functions, not {wanted}",
            names.len()
        )));
    }
    let numbers = |name: &str| match site.attributes.get(name) {
        Some(AttrValue::Floats(numbers)) => numbers.into_owned(),
        _ => Vec::new(),
    };
    // Functions with a parameter take the next number of the list, as long as it lasts. Affine and
    // ScaledTanh are not operators any more; without numbers they are the identity and Tanh.
    let mut alphas = numbers("activation_alpha").into_iter();
    let mut betas = numbers("activation_beta").into_iter();
    let mut all = SmallVec::new();
    for name in names.iter().take(wanted) {
        let mut alpha = |default: f32| alphas.next().unwrap_or(default);
        let mut beta = |default: f32| betas.next().unwrap_or(default);
        all.push(match name.to_ascii_lowercase().as_str() {
            "relu" => Gate::Of(Unary::Relu),
            "tanh" => Gate::Of(Unary::Tanh),
            "sigmoid" => Gate::Of(Unary::Sigmoid),
            "softsign" => Gate::Of(Unary::Softsign),
            "softplus" => Gate::Of(Unary::Softplus),
            "leakyrelu" => Gate::Of(Unary::LeakyRelu { alpha: alpha(0.01) }),
            "thresholdedrelu" => Gate::Of(Unary::ThresholdedRelu { alpha: alpha(1.0) }),
            "elu" => Gate::Of(Unary::Elu { alpha: alpha(1.0) }),
            "hardsigmoid" => Gate::Of(Unary::HardSigmoid { alpha: alpha(0.2), beta: beta(0.5) }),
            "affine" => Gate::Affine { alpha: alpha(1.0), beta: beta(0.0) },
            "scaledtanh" => Gate::ScaledTanh { alpha: alpha(1.0), beta: beta(1.0) },
            _ => {
                return Err(BindError::Invalid(format!(
                    "attribute 'activations' names '{name}', which is not an activation function"
                )));
            }
        });
    }
    Ok(all)
}
