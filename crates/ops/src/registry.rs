//! The list of all definitions, and the registry that looks operators up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sardonyx_model::normalize_domain;

use crate::def::OpDef;
use crate::list::{List, Place};
use crate::schema::Schema;
use crate::user::RegistryError;
use crate::{
    control, image, intern, math, microsoft, ml, nn, optional, quantization, random, reduction,
    sequence, signal, tensor, text, training,
};

/// Newest version of each operator set that this release knows.
pub const DOMAIN_VERSIONS: &[(&str, u32)] =
    &[("", 28), ("ai.onnx.ml", 5), ("ai.onnx.preview", 1), ("ai.onnx.preview.training", 1)];

/// All operators of the standard, by domain and name, one line each. A test compares the list with
/// the files.
static OPERATORS: &[&OpDef] = &[
    &math::unary::ABS,
    &math::unary::ACOS,
    &math::unary::ACOSH,
    &math::binary::ADD,
    &image::affine_grid::AFFINE_GRID,
    &math::binary::AND,
    &reduction::ARG_MAX,
    &reduction::ARG_MIN,
    &math::unary::ASIN,
    &math::unary::ASINH,
    &math::unary::ATAN,
    &math::unary::ATANH,
    &nn::attention::ATTENTION,
    &nn::average_pool::AVERAGE_POOL,
    &nn::batch_normalization::BATCH_NORMALIZATION,
    &random::BERNOULLI,
    &tensor::cast_like::BIT_CAST,
    &math::binary::BIT_SHIFT,
    &math::binary::BITWISE_AND,
    &math::unary::BITWISE_NOT,
    &math::binary::BITWISE_OR,
    &math::binary::BITWISE_XOR,
    &signal::BLACKMAN_WINDOW,
    &tensor::cast::CAST,
    &tensor::cast_like::CAST_LIKE,
    &nn::attention::CAUSAL_CONV_WITH_STATE,
    &math::unary::CEIL,
    &math::unary::CELU,
    &tensor::rearrange::CENTER_CROP_PAD,
    &math::clip::CLIP,
    &nn::conv_variants::COL2IM,
    &tensor::select::COMPRESS,
    &tensor::concat::CONCAT,
    &sequence::CONCAT_FROM_SEQUENCE,
    &tensor::constant::CONSTANT,
    &tensor::constant_of_shape::CONSTANT_OF_SHAPE,
    &nn::conv::CONV,
    &quantization::CONV_INTEGER,
    &nn::conv_variants::CONV_TRANSPOSE,
    &math::unary::COS,
    &math::unary::COSH,
    &math::cumulative::CUM_PROD,
    &math::cumulative::CUM_SUM,
    &signal::fourier::DFT,
    &nn::conv_variants::DEFORM_CONV,
    &tensor::rearrange::DEPTH_TO_SPACE,
    &quantization::linear::DEQUANTIZE_LINEAR,
    &math::linear::DET,
    &math::binary::DIV,
    &nn::dropout::DROPOUT,
    &quantization::linear::DYNAMIC_QUANTIZE_LINEAR,
    &math::linear::EINSUM,
    &math::unary::ELU,
    &math::binary::EQUAL,
    &math::unary::ERF,
    &math::unary::EXP,
    &tensor::expand::EXPAND,
    &tensor::generate::EYE_LIKE,
    &tensor::flatten::FLATTEN,
    &math::unary::FLOOR,
    &nn::recurrent::GRU,
    &tensor::gather::GATHER,
    &tensor::gather_elements::GATHER_ELEMENTS,
    &tensor::gather_elements::GATHER_ND,
    &math::unary::GELU,
    &math::gemm::GEMM,
    &nn::global_pool::GLOBAL_AVERAGE_POOL,
    &nn::lp_pool::GLOBAL_LP_POOL,
    &nn::global_pool::GLOBAL_MAX_POOL,
    &math::binary::GREATER,
    &math::binary::GREATER_OR_EQUAL,
    &image::GRID_SAMPLE,
    &nn::layer_normalization::GROUP_NORMALIZATION,
    &signal::HAMMING_WINDOW,
    &signal::HANN_WINDOW,
    &math::unary::HARD_SIGMOID,
    &math::unary::HARD_SWISH,
    &math::softmax::HARDMAX,
    &tensor::identity::IDENTITY,
    &control::IF,
    &image::IMAGE_DECODER,
    &nn::instance_normalization::INSTANCE_NORMALIZATION,
    &math::classify::IS_INF,
    &math::classify::IS_NAN,
    &nn::lrn::LRN,
    &nn::recurrent::LSTM,
    &nn::layer_normalization::LAYER_NORMALIZATION,
    &math::unary::LEAKY_RELU,
    &math::binary::LESS,
    &math::binary::LESS_OR_EQUAL,
    &nn::attention::LINEAR_ATTENTION,
    &math::unary::LOG,
    &math::softmax::LOG_SOFTMAX,
    &control::LOOP,
    &nn::layer_normalization::LP_NORMALIZATION,
    &nn::lp_pool::LP_POOL,
    &math::matmul::MATMUL,
    &quantization::MATMUL_INTEGER,
    &math::variadic::MAX,
    &nn::max_pool::MAX_POOL,
    &image::MAX_ROI_POOL,
    &nn::max_unpool::MAX_UNPOOL,
    &math::variadic::MEAN,
    &nn::layer_normalization::MEAN_VARIANCE_NORMALIZATION,
    &signal::MEL_WEIGHT_MATRIX,
    &math::variadic::MIN,
    &math::unary::MISH,
    &math::binary::MOD,
    &math::binary::MUL,
    &random::MULTINOMIAL,
    &math::unary::NEG,
    &nn::loss::NEGATIVE_LOG_LIKELIHOOD_LOSS,
    &image::NON_MAX_SUPPRESSION,
    &tensor::select::NON_ZERO,
    &math::unary::NOT,
    &tensor::generate::ONE_HOT,
    &optional::OPTIONAL,
    &optional::OPTIONAL_GET_ELEMENT,
    &optional::OPTIONAL_HAS_ELEMENT,
    &math::binary::OR,
    &math::prelu::PRELU,
    &tensor::pad::PAD,
    &math::binary::POW,
    &quantization::QLINEAR_CONV,
    &quantization::QLINEAR_MATMUL,
    &quantization::linear::QUANTIZE_LINEAR,
    &nn::layer_normalization::RMS_NORMALIZATION,
    &nn::recurrent::RNN,
    &random::RANDOM_NORMAL,
    &random::RANDOM_NORMAL_LIKE,
    &random::RANDOM_UNIFORM,
    &random::RANDOM_UNIFORM_LIKE,
    &tensor::generate::RANGE,
    &math::unary::RECIPROCAL,
    &reduction::REDUCE_L1,
    &reduction::REDUCE_L2,
    &reduction::REDUCE_LOG_SUM,
    &reduction::REDUCE_LOG_SUM_EXP,
    &reduction::REDUCE_MAX,
    &reduction::REDUCE_MEAN,
    &reduction::REDUCE_MIN,
    &reduction::REDUCE_PROD,
    &reduction::REDUCE_SUM,
    &reduction::REDUCE_SUM_SQUARE,
    &text::REGEX_FULL_MATCH,
    &math::unary::RELU,
    &tensor::reshape::RESHAPE,
    &image::resize::RESIZE,
    &tensor::rearrange::REVERSE_SEQUENCE,
    &image::ROI_ALIGN,
    &nn::attention::ROTARY_EMBEDDING,
    &math::unary::ROUND,
    &signal::fourier::STFT,
    &control::SCAN,
    &tensor::scatter::SCATTER,
    &tensor::scatter::SCATTER_ELEMENTS,
    &tensor::scatter::SCATTER_ND,
    &math::unary::SELU,
    &sequence::SEQUENCE_AT,
    &sequence::SEQUENCE_CONSTRUCT,
    &sequence::SEQUENCE_EMPTY,
    &sequence::SEQUENCE_ERASE,
    &sequence::SEQUENCE_INSERT,
    &sequence::SEQUENCE_LENGTH,
    &sequence::SEQUENCE_MAP,
    &tensor::shape::SHAPE,
    &math::gated::SHRINK,
    &math::unary::SIGMOID,
    &math::unary::SIGN,
    &math::unary::SIN,
    &math::unary::SINH,
    &tensor::size::SIZE,
    &tensor::slice::SLICE,
    &math::softmax::SOFTMAX,
    &nn::loss::SOFTMAX_CROSS_ENTROPY_LOSS,
    &math::unary::SOFTPLUS,
    &math::unary::SOFTSIGN,
    &tensor::rearrange::SPACE_TO_DEPTH,
    &tensor::split::SPLIT,
    &sequence::SPLIT_TO_SEQUENCE,
    &math::unary::SQRT,
    &tensor::squeeze::SQUEEZE,
    &text::STRING_CONCAT,
    &text::STRING_NORMALIZER,
    &text::STRING_SPLIT,
    &math::binary::SUB,
    &math::variadic::SUM,
    &math::gated::SWIGLU,
    &math::gated::SWISH,
    &math::unary::TAN,
    &math::unary::TANH,
    &tensor::scatter::TENSOR_SCATTER,
    &text::TF_IDF_VECTORIZER,
    &math::unary::THRESHOLDED_RELU,
    &tensor::rearrange::TILE,
    &tensor::select::TOP_K,
    &tensor::transpose::TRANSPOSE,
    &tensor::generate::TRILU,
    &tensor::select::UNIQUE,
    &tensor::unsqueeze::UNSQUEEZE,
    &image::resize::UPSAMPLE,
    &tensor::where_::WHERE,
    &math::binary::XOR,
    &ml::features::ARRAY_FEATURE_EXTRACTOR,
    &ml::features::BINARIZER,
    &ml::maps::CAST_MAP,
    &ml::maps::CATEGORY_MAPPER,
    &ml::maps::DICT_VECTORIZER,
    &ml::features::FEATURE_VECTORIZER,
    &ml::features::IMPUTER,
    &ml::maps::LABEL_ENCODER,
    &ml::models::LINEAR_CLASSIFIER,
    &ml::models::LINEAR_REGRESSOR,
    &ml::features::NORMALIZER,
    &ml::features::ONE_HOT_ENCODER,
    &ml::models::SVM_CLASSIFIER,
    &ml::models::SVM_REGRESSOR,
    &ml::features::SCALER,
    &ml::models::TREE_ENSEMBLE,
    &ml::models::TREE_ENSEMBLE_CLASSIFIER,
    &ml::models::TREE_ENSEMBLE_REGRESSOR,
    &ml::maps::ZIP_MAP,
    &nn::attention::FLEX_ATTENTION,
    &training::ADAGRAD,
    &training::ADAM,
    &training::GRADIENT,
    &training::MOMENTUM,
];

/// Operators of the standard.
static STANDARD: List = List::new(OPERATORS);

/// Look-up of operators: those of the standard, with the changes that a program makes.
///
/// A registry is a value: cloning it is cheap, and changing a clone does not affect the original.
///
/// ```
/// use sardonyx_ops::{Registry, Schema};
///
/// let standard = Registry::standard();
/// let mut mine = standard.clone();
/// mine.set_versions("com.example", 1, 3)?;
/// mine.register(Schema::new("com.example", "Blur", 2))?;
/// assert!(mine.schema("com.example", "Blur", 3).is_some());
/// assert!(standard.schema("com.example", "Blur", 3).is_none());
/// # Ok::<(), sardonyx_ops::RegistryError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Registry {
    /// Absent until the first change.
    changes: Option<Arc<Changes>>,
    /// Whether look-ups include operators that ONNX Runtime adds.
    has_microsoft: bool,
}

/// Operator in its form at an opset version, which a node calls.
#[derive(Debug, Clone, Copy)]
pub struct OpRef {
    /// The operator in all of its versions.
    pub def: &'static OpDef,
    /// Declarations of the operator at that opset version.
    pub schema: &'static Schema,
    /// Opset version. The operator may have changed last in an older one.
    pub opset: u32,
}

impl OpRef {
    fn at(place: Place, opset: u32) -> Option<OpRef> {
        Some(OpRef { def: place.def(), schema: place.at(opset)?, opset })
    }

    /// Whether ONNX Runtime adds the operator to the standard. A function of a model with the same
    /// name takes precedence.
    pub fn is_added(&self) -> bool {
        is_added(self.def)
    }
}

/// Changes to the list of the standard.
#[derive(Debug, Clone, Default)]
struct Changes {
    added: BTreeMap<&'static str, BTreeMap<&'static str, BTreeMap<u32, Schema>>>,
    removed: BTreeMap<(&'static str, &'static str), BTreeSet<u32>>,
    versions: BTreeMap<&'static str, (u32, u32)>,
}

impl Registry {
    /// Creates a registry of the operators of the standard.
    pub fn standard() -> Registry {
        Registry::default()
    }

    /// Creates a registry of the operators of the standard and those that ONNX Runtime adds in the
    /// domain `com.microsoft` and, in one case, in the default domain, as far as exported models
    /// use them. It also has `DistCollective`, which TensorRT adds to the default domain.
    ///
    /// Added operators are found by name only. Lists of operators, versions and domains remain
    /// those of the standard: the domain has a single version, and far more operators than this
    /// crate defines.
    ///
    /// ```
    /// use sardonyx_ops::Registry;
    ///
    /// let known = Registry::with_microsoft();
    /// assert!(known.schema("com.microsoft", "FusedMatMul", 1).is_some());
    /// assert!(Registry::standard().schema("com.microsoft", "FusedMatMul", 1).is_none());
    /// assert_eq!(known.versions("com.microsoft"), None);
    /// ```
    pub fn with_microsoft() -> Registry {
        Registry { has_microsoft: true, ..Registry::default() }
    }

    /// Includes the operators that ONNX Runtime adds.
    #[must_use]
    pub fn including_microsoft(self) -> Registry {
        Registry { has_microsoft: true, ..self }
    }

    /// Excludes the operators that ONNX Runtime adds.
    #[must_use]
    pub fn without_microsoft(self) -> Registry {
        Registry { has_microsoft: false, ..self }
    }

    /// Lists the operators of the standard, by domain and name, ignoring changes.
    pub fn operators(&self) -> impl Iterator<Item = &'static OpDef> + use<> {
        STANDARD.operators().iter().copied()
    }

    /// Lists the operators that ONNX Runtime adds, by domain and name, whether look-ups include
    /// them or not.
    pub fn microsoft_operators(&self) -> impl Iterator<Item = &'static OpDef> + use<> {
        microsoft::LIST.operators().iter().copied()
    }

    /// Returns an operator in all of its versions, ignoring changes.
    pub fn operator(&self, domain: &str, name: &str) -> Option<&'static OpDef> {
        Some(self.place(normalize_domain(domain), name)?.def())
    }

    /// Returns the operator of a domain whose name is closest to an unknown name.
    pub fn similar(&self, domain: &str, name: &str) -> Option<&'static str> {
        let domain = normalize_domain(domain);
        let added = self.has_microsoft.then(|| self.microsoft_operators());
        let known = self.operators().chain(added.into_iter().flatten());
        let known = known.filter(|operator| operator.domain == domain);
        sardonyx_proto::closest(name, known.map(|operator| operator.name))
    }

    /// Returns the position of an operator in its list.
    fn place(&self, domain: &str, name: &str) -> Option<Place> {
        STANDARD.find(domain, name).or_else(|| self.added_place(domain, name))
    }

    /// Returns the position of an operator that exists at an opset version: ONNX Runtime has some
    /// of the standard's operators at versions before the standard introduced them.
    fn place_at(&self, domain: &str, name: &str, opset: u32) -> Option<Place> {
        let standard = STANDARD.find(domain, name);
        if standard.is_some_and(|place| place.def().version_at(opset).is_some()) {
            return standard;
        }
        self.added_place(domain, name).or(standard)
    }

    fn added_place(&self, domain: &str, name: &str) -> Option<Place> {
        self.has_microsoft.then(|| microsoft::LIST.find(domain, name)).flatten()
    }

    /// Returns the definition that a schema is a version of.
    pub fn definition(&self, schema: &Schema) -> Option<&'static OpDef> {
        Some(self.place_at(schema.domain, schema.name, schema.since)?.def())
    }

    /// Whether ONNX Runtime adds an operator to the standard.
    pub fn is_added(&self, schema: &Schema) -> bool {
        self.definition(schema).is_some_and(is_added)
    }

    /// Returns the schema of an operator at an opset version.
    pub fn schema(&self, domain: &str, name: &str, opset: u32) -> Option<&Schema> {
        let domain = normalize_domain(domain);
        let place = self.place_at(domain, name, opset);
        let operator = place.map(Place::def);
        let Some(changes) = &self.changes else {
            return place?.at(opset);
        };
        let added = changes.added_to(domain, name);
        let added = added.and_then(|versions| versions.range(..=opset).next_back());
        let listed = operator.and_then(|operator| {
            let mut versions = operator.versions().rev().map(|version| version.since);
            versions.find(|since| *since <= opset && !changes.removes(domain, name, *since))
        });
        match (added, listed) {
            (Some((since, schema)), listed) if listed.is_none_or(|listed| listed < *since) => {
                Some(schema)
            }
            (_, listed) => place?.version(listed?),
        }
    }

    /// Returns the operator that a node calls at an opset version; `None` if it is unknown, or if
    /// its schema at that version was changed.
    pub fn op_ref(&self, domain: &str, name: &str, opset: u32) -> Option<OpRef> {
        let op = OpRef::at(self.place_at(normalize_domain(domain), name, opset)?, opset)?;
        let schema = self.changes.is_none().then_some(op.schema);
        let schema = schema.or_else(|| self.schema(domain, name, opset))?;
        std::ptr::eq(schema, op.schema).then_some(op)
    }

    /// Returns the operator that was registered under a name that the standard does not have, as a
    /// node calls it at an opset version. Its definition holds only the schema. Neither is ever
    /// freed; see [`intern`].
    pub fn registered(&self, domain: &str, name: &str, opset: u32) -> Option<OpRef> {
        let domain = normalize_domain(domain);
        let changes = self.changes.as_ref().filter(|_| STANDARD.find(domain, name).is_none())?;
        let (_, schema) = changes.added_to(domain, name)?.range(..=opset).next_back()?;
        let (def, schema) = intern::operator(schema);
        Some(OpRef { def, schema, opset })
    }

    /// Lists all versions of all operators of the standard and of registered ones, by domain, name
    /// and version.
    pub fn schemas(&self) -> impl Iterator<Item = &Schema> {
        let listed = STANDARD.places().flat_map(|place| {
            let versions = place.def().versions().map(|version| version.since);
            versions.filter_map(move |since| place.version(since))
        });
        let changes = self.changes.as_deref();
        let mut all: Vec<&Schema> = listed
            .filter(|schema| {
                changes.is_none_or(|changes| {
                    !changes.removes(schema.domain, schema.name, schema.since)
                })
            })
            .collect();
        if let Some(changes) = changes {
            let added = changes.added.values().flat_map(BTreeMap::values);
            all.extend(added.flat_map(BTreeMap::values));
            all.sort_by_key(|schema| (schema.domain, schema.name, schema.since));
        }
        all.into_iter()
    }

    /// Returns the oldest and the newest version of an operator set; `None` for an unknown
    /// set.
    pub fn versions(&self, domain: &str) -> Option<(u32, u32)> {
        let domain = normalize_domain(domain);
        let changed = self.changes.as_ref().and_then(|changes| changes.versions.get(domain));
        changed.copied().or_else(|| {
            let found = DOMAIN_VERSIONS.iter().find(|(known, _)| *known == domain);
            found.map(|(_, newest)| (1, *newest))
        })
    }

    /// Lists the operator sets with their oldest and newest versions, by domain.
    pub fn domains(&self) -> BTreeMap<&'static str, (u32, u32)> {
        let listed = DOMAIN_VERSIONS.iter();
        let mut domains: BTreeMap<_, _> =
            listed.map(|(domain, newest)| (*domain, (1, *newest))).collect();
        if let Some(changes) = &self.changes {
            domains.extend(&changes.versions);
        }
        domains
    }

    /// Sets the versions of an operator set, known or new.
    ///
    /// # Errors
    ///
    /// [`RegistryError::NoVersions`] if the range is empty or begins before version 1.
    pub fn set_versions(
        &mut self,
        domain: &str,
        oldest: u32,
        newest: u32,
    ) -> Result<(), RegistryError> {
        let domain = intern::text(normalize_domain(domain));
        if oldest == 0 || newest < oldest {
            return Err(RegistryError::NoVersions { domain, oldest, newest });
        }
        self.change().versions.insert(domain, (oldest, newest));
        Ok(())
    }

    /// Adds a version of an operator.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Malformed`] for a wrong schema; [`RegistryError::Duplicate`] if there is
    /// such a version; [`RegistryError::OutsideOfSet`] if the operator set does not have its
    /// version number.
    pub fn register(&mut self, schema: Schema) -> Result<(), RegistryError> {
        schema.check()?;
        let mut schema = schema;
        schema.domain = normalize_domain(schema.domain);
        let Schema { domain, name, since, .. } = schema;
        if self.has_version(domain, name, since) {
            return Err(RegistryError::Duplicate { domain, name, since });
        }
        let versions = self.versions(domain);
        if versions.is_none_or(|(oldest, newest)| since < oldest || since > newest) {
            return Err(RegistryError::OutsideOfSet { domain, name, since, versions });
        }
        let added = &mut self.change().added;
        added.entry(domain).or_default().entry(name).or_default().insert(since, schema);
        Ok(())
    }

    /// Removes a version of an operator, which may be one of the standard.
    ///
    /// # Errors
    ///
    /// [`RegistryError::Unknown`] for an unknown version.
    pub fn remove(&mut self, domain: &str, name: &str, since: u32) -> Result<(), RegistryError> {
        let domain = normalize_domain(domain);
        if !self.has_version(domain, name, since) {
            return Err(RegistryError::Unknown {
                domain: domain.to_string(),
                name: name.to_string(),
                since,
            });
        }
        let operator = self.operator(domain, name);
        let changes = self.change();
        if let Some(operators) = changes.added.get_mut(domain)
            && let Some(versions) = operators.get_mut(name)
            && versions.remove(&since).is_some()
        {
            if versions.is_empty() {
                operators.remove(name);
            }
            return Ok(());
        }
        if let Some(operator) = operator {
            let hidden = changes.removed.entry((operator.domain, operator.name));
            hidden.or_default().insert(since);
        }
        Ok(())
    }

    fn has_version(&self, domain: &str, name: &str, since: u32) -> bool {
        let found = self.schema(domain, name, since);
        found.is_some_and(|schema| schema.since == since)
    }

    fn change(&mut self) -> &mut Changes {
        Arc::make_mut(self.changes.get_or_insert_default())
    }
}

impl Changes {
    fn added_to(&self, domain: &str, name: &str) -> Option<&BTreeMap<u32, Schema>> {
        self.added.get(domain)?.get(name)
    }

    fn removes(&self, domain: &str, name: &str, since: u32) -> bool {
        let removed = self.removed.get(&(domain, name));
        removed.is_some_and(|removed| removed.contains(&since))
    }
}

impl OpDef {
    /// Whether ONNX Runtime adds the operator to the standard.
    pub fn is_added(&self) -> bool {
        is_added(self)
    }
}

/// Whether ONNX Runtime adds an operator to the standard.
fn is_added(def: &OpDef) -> bool {
    let found = microsoft::LIST.find(def.domain, def.name);
    found.is_some_and(|place| place.def().is(def))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::typeset::{TypeSet, read_type};
    use std::collections::HashSet;

    #[test]
    fn the_lists_are_sorted_and_every_version_expands() {
        let key = |op: &&'static OpDef| (op.domain, op.name);
        for list in [&STANDARD, &microsoft::LIST] {
            assert!(list.operators().is_sorted_by(|a, b| key(a) < key(b)));
        }
        for op in STANDARD.operators().iter().chain(microsoft::LIST.operators()) {
            assert!(op.about.ends_with('.'), "{}: the description must be sentences", op.name);
            let versions: Vec<u32> = op.versions().map(|version| version.since).collect();
            assert!(versions.windows(2).all(|pair| pair[0] < pair[1]), "{}", op.name);
            for since in versions {
                assert_eq!(
                    op.schema_at(since).map(|schema| schema.since),
                    Some(since),
                    "{}",
                    op.name
                );
            }
            let newest = op.schema_at(op.newest()).expect("it is the newest one");
            for input in op.deciding_inputs() {
                assert!(newest.input(*input).is_some(), "{} has no input {input}", op.name);
            }
            for adapter in op.adapters() {
                let boundary = adapter.from.max(adapter.to);
                assert!(
                    op.versions().any(|version| version.since == boundary),
                    "{} has no version {boundary}",
                    op.name
                );
            }
        }
    }
    #[test]
    fn a_clone_changes_alone_and_lookups_see_both_layers() {
        // OPSET-16, NAME-07+
        let standard = Registry::standard();
        let mut mine = standard.clone();
        let relu = |registry: &Registry, opset| registry.schema("", "Relu", opset).map(|s| s.since);
        assert_eq!(relu(&mine, 28), Some(14));
        mine.register(Schema::new("", "Relu", 20)).unwrap();
        mine.register(Schema::new("ai.onnx.ml", "Relu", 1)).unwrap();
        assert_eq!([relu(&mine, 28), relu(&mine, 19)], [Some(20), Some(14)]);
        assert!(mine.schema("ai.onnx.ml", "Relu", 1).is_some());
        mine.remove("ai.onnx", "Relu", 14).unwrap();
        assert_eq!([relu(&mine, 28), relu(&mine, 19)], [Some(20), Some(13)]);
        mine.remove("", "Relu", 20).unwrap();
        assert_eq!([relu(&mine, 28), relu(&standard, 28)], [Some(13), Some(14)]);
        assert!(mine.schema("", "relu", 28).is_none());
        assert_eq!(mine.schemas().count(), standard.schemas().count());
        mine.register(Schema::new("", "Relu", 14)).unwrap();
        assert!(mine.schemas().is_sorted_by_key(|s| (s.domain, s.name, s.since)));
        assert_eq!(mine.schemas().count(), standard.schemas().count() + 1);
        assert!(matches!(mine.remove("", "Relu", 15), Err(RegistryError::Unknown { .. })));
    }

    #[test]
    fn a_version_exists_once_and_within_its_set() {
        // OPSET-12+-, OPSET-15-, NAME-07-
        let mut registry = Registry::standard();
        let duplicate = registry.register(Schema::new("ai.onnx", "Relu", 14));
        assert!(matches!(duplicate, Err(RegistryError::Duplicate { since: 14, .. })));
        // OPSET-17-
        let mut register = |domain, since| registry.register(Schema::new(domain, "Mine", since));
        for (domain, since) in [("", 29), ("com.example", 1)] {
            let error = register(domain, since).unwrap_err();
            assert!(matches!(error, RegistryError::OutsideOfSet { .. }), "{error}");
        }
        register("", 28).unwrap();
        registry.set_versions("com.example", 2, 3).unwrap();
        assert_eq!(registry.versions("com.example"), Some((2, 3)));
        assert_eq!(registry.domains()[""], (1, 28));
        assert!(registry.register(Schema::new("com.example", "Mine", 1)).is_err());
        registry.register(Schema::new("com.example", "Mine", 2)).unwrap();
        let again = registry.register(Schema::new("com.example", "Mine", 2));
        assert!(matches!(again, Err(RegistryError::Duplicate { .. })));
        for (oldest, newest) in [(0, 1), (3, 2)] {
            assert!(registry.set_versions("x", oldest, newest).is_err());
        }
    }

    #[test]
    fn the_standard_s_own_schemas_pass() {
        // VER-09+, NODE-10+, OPSET-12, OPSET-15+, OPSET-17
        let registry = Registry::standard();
        let mut seen = HashSet::new();
        for schema in registry.schemas() {
            schema.check().unwrap();
            assert!(seen.insert((schema.domain, schema.name, schema.since)));
            let newest = DOMAIN_VERSIONS.iter().find(|(domain, _)| *domain == schema.domain);
            assert!(newest.is_some_and(|(_, newest)| schema.since <= *newest));
        }
        // NAME-09-: version 1 has an input and an attribute called `split`.
        let mut ambiguous: Vec<&str> = registry
            .schemas()
            .filter(|schema| schema.ambiguous_names().next().is_some())
            .map(|schema| schema.name)
            .collect();
        ambiguous.dedup();
        assert_eq!(ambiguous, ["Split"]);
    }

    #[test]
    fn sets_of_types_are_read_by_the_names_that_they_print() {
        let registry = Registry::standard();
        for var in registry.schemas().flat_map(|schema| &schema.types) {
            let names = var.allowed.names();
            let read = TypeSet::parse(names.iter().map(String::as_str)).unwrap();
            assert_eq!(read.names().len(), names.len(), "{names:?}");
            // Types that are spelled out may be spelled in more than one way.
            let spelled_out = names.iter().any(|name| name.contains("map("));
            assert!(spelled_out || read == var.allowed, "{names:?}");
            assert!(names.iter().all(|name| var.allowed.allows(&read_type(name).unwrap())));
        }
    }
}
