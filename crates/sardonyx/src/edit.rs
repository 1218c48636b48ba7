//! Edits models: sets header fields and sizes, inlines functions, strips unneeded parts, extracts
//! parts, simplifies.
//!
//! Most edits are methods of [`Model`], such as [`Model::set_opset`], [`Model::inline`],
//! [`Model::extract`] and [`Model::strip`]. An operation that rewrites a graph checks its result:
//! if that has errors that the model did not have, the operation fails with [`EditError::Invalid`].

use sardonyx_model::{
    DimValue, Entry, OperatorSetId, Symbol, TypeKind, TypeProto, normalize_domain,
};
use sardonyx_passes::NEWEST_IR_VERSION;
use sardonyx_passes::{Edit, JobKind, format_needs, set_ir_version};

use crate::error::{Error, ErrorKind};
use crate::model::Model;

#[doc(inline)]
pub use crate::edit_error::EditError;
#[doc(inline)]
pub use crate::extract::ExtractOptions;
#[doc(inline)]
pub use crate::inline::InlineOptions;
#[doc(inline)]
pub use crate::results::InvalidResult;
#[doc(inline)]
pub use crate::simplify::SimplifyOptions;
#[doc(inline)]
pub use sardonyx_passes::{
    CheckAnswer, ExtractReport, FunctionId, InlineReport, NearMiss, ReduceOptions, ReduceReport,
    RejectedRewrite, RuleUse, SimplifyLevel, SimplifyReport, SimplifyRule, StripOptions,
    StripReport, Tally, simplify_rules,
};

/// Edits header fields of a model, such as versions, producer and metadata.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
/// let mut model = sardonyx::Model::open(path)?;
/// model.set_producer_name("me");
/// model.set_metadata("license", "MIT");
/// assert_eq!(model.metadata_value("license").as_deref(), Some("MIT"));
/// let error = model.set_ir_version(3).unwrap_err();
/// assert!(error.to_string().contains("initializers that are not inputs"), "{error}");
/// # Ok::<(), sardonyx::Error>(())
/// ```
impl Model {
    /// Sets the IR version, which is the version of the file format, and changes the model where
    /// the rules of that version differ: from 4 on, initializers of subgraphs are not inputs; from
    /// 3 on, an implied import of `ai.onnx` is listed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if the version does not exist or lacks a feature that the model uses.
    pub fn set_ir_version(&mut self, version: i64) -> Result<(), Error> {
        if !(1..=NEWEST_IR_VERSION).contains(&version) {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("IR version {version} does not exist"),
            )
            .with_help(format!("use a version from 1 to {NEWEST_IR_VERSION}")));
        }
        let needs = format_needs(&self.graph, version);
        let lacking: Vec<String> = needs
            .iter()
            .map(|need| {
                let has = format!("IR version {} has {}", need.ir_version, need.feature);
                match need.removed_by {
                    Some(command) => format!("{has}; `{command}` removes the feature"),
                    None => has,
                }
            })
            .collect();
        if !lacking.is_empty() {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("IR version {version} does not support features that the model uses"),
            )
            .with_help(lacking.join("\n")));
        }
        if version >= 3
            && self.graph.opset("").is_none()
            && self.graph.header.opset_import.is_empty()
        {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "IR version {version} requires opset_import, which the model does not have"
                ),
            )
            .with_help(
                "set the operator set version first; older models use version 1 of ai.onnx",
            ));
        }
        set_ir_version(&mut self.graph, version);
        Ok(())
    }

    /// Sets the imported version of an operator set, and removes duplicate imports of its domain.
    /// Nodes stay as they are, so they may be invalid in the new version or compute something else;
    /// [`Model::convert`] converts them.
    pub fn set_opset(&mut self, domain: &str, version: i64) {
        let wanted = normalize_domain(domain);
        let mut imports = std::mem::take(&mut self.graph.header.opset_import);
        let is_wanted =
            |import: &OperatorSetId| normalize_domain(&self.graph.display(import.domain)) == wanted;
        // The last of several entries is in effect.
        let found = imports.iter().rposition(is_wanted);
        let mut index = 0;
        imports.retain(|import| {
            index += 1;
            Some(index - 1) == found || !is_wanted(import)
        });
        let kept = imports.iter().position(is_wanted);
        self.graph.header.opset_import = imports;
        match kept {
            Some(index) => self.graph.header.opset_import[index].version = Some(version),
            None => {
                let domain = Some(self.graph.intern(domain));
                self.graph.header.opset_import.push(OperatorSetId {
                    domain,
                    version: Some(version),
                    ..OperatorSetId::default()
                });
            }
        }
    }

    /// Replaces the declared size of one axis of a main graph input. Returns `None` if the main
    /// graph has no input of this name, or if the input's shape has no such axis.
    pub fn set_input_dim(&mut self, input: &str, axis: usize, size: i64) -> Option<()> {
        let name = self.graph.symbol(input.as_bytes())?;
        let main = self.graph.main?;
        let inputs = &mut self.graph.graph_mut(main).inputs;
        let found = inputs.iter_mut().find(|info| info.name == Some(name))?;
        let dims = &mut found.ty.as_mut()?.innermost_shape_mut()?.dims;
        dims.get_mut(axis)?.value = Some(DimValue::Value(size));
        Some(())
    }

    /// Sets the name of the tool that produced the model.
    pub fn set_producer_name(&mut self, name: &str) {
        self.graph.header.producer_name = Some(self.graph.intern(name));
    }

    /// Sets the version of the tool that produced the model.
    pub fn set_producer_version(&mut self, version: &str) {
        self.graph.header.producer_version = Some(self.graph.intern(version));
    }

    /// Sets Sardonyx and its version as the model's producer, unless the model already names a
    /// producer. An existing producer is kept, as tools depend on it.
    ///
    /// ```
    /// let text = "<ir_version: 10, opset_import: [\"\": 21]>
    ///     g (float[N] x) => (float[N] y) { y = Abs (x) }";
    /// let mut model = sardonyx::Model::from_text(text)?;
    /// model.fill_producer();
    /// assert_eq!(model.producer_name(), "Sardonyx");
    /// model.set_producer_name("me");
    /// model.fill_producer();
    /// assert_eq!(model.producer_name(), "me");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn fill_producer(&mut self) {
        if self.producer_name().is_empty() && self.producer_version().is_empty() {
            self.set_producer_name("Sardonyx");
            self.set_producer_version(env!("CARGO_PKG_VERSION"));
        }
    }

    /// Sets the domain of the model, a namespace such as `org.example`.
    pub fn set_domain(&mut self, domain: &str) {
        self.graph.header.domain = Some(self.graph.intern(domain));
    }

    /// Sets the version of the model itself, which may pack major, minor and patch version into
    /// 16, 16 and 32 bits.
    pub fn set_model_version(&mut self, version: i64) {
        self.graph.header.model_version = Some(version);
    }

    /// Sets the model's documentation (`doc_string`).
    pub fn set_doc(&mut self, doc: &str) {
        self.graph.header.doc_string = Some(self.graph.intern(doc));
    }

    /// Sets the value of a key in the model's metadata (`metadata_props`). A new key is appended.
    pub fn set_metadata(&mut self, key: &str, value: &str) {
        let value = Some(self.graph.intern(value));
        let key = self.graph.intern(key);
        let entries = &mut self.graph.header.metadata_props;
        match entries.iter_mut().find(|entry| entry.key == Some(key)) {
            Some(entry) => entry.value = value,
            None => entries.push(Entry { key: Some(key), value, ..Entry::default() }),
        }
    }

    /// Removes a key and its value from the model's metadata. Returns whether the model had the
    /// key.
    pub fn remove_metadata(&mut self, key: &str) -> bool {
        let Some(key) = self.graph.symbol(key.as_bytes()) else {
            return false;
        };
        let entries = &mut self.graph.header.metadata_props;
        let before = entries.len();
        entries.retain(|entry| entry.key != Some(key));
        entries.len() < before
    }

    /// Replaces symbolic dimensions by unknown ones in the declared types of the main graph's
    /// inputs, outputs and intermediate values, except symbols in `kept`. Dimensions that shared a
    /// symbol may then differ, where the operators allow it.
    ///
    /// ```
    /// let text = "<ir_version: 10, opset_import: [\"\": 21]>
    ///     g (float[N] x, float[N] y) => (float[N] a, float[N] b) { a = Abs (x) b = Abs (y) }";
    /// let mut model = sardonyx::Model::from_text(text)?;
    /// model.forget_size_names(&[]);
    /// assert_eq!(model.inputs()[0].to_string(), "x: float[?]");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub fn forget_size_names(&mut self, kept: &[&str]) {
        let Some(main) = self.graph.main else { return };
        let kept: Vec<Symbol> =
            kept.iter().filter_map(|name| self.graph.symbol(name.as_bytes())).collect();
        let graph = self.graph.graph_mut(main);
        let infos = graph.inputs.iter_mut().chain(&mut graph.outputs).chain(&mut graph.value_info);
        for ty in infos.filter_map(|info| info.ty.as_mut()) {
            forget_symbols(ty, &kept);
        }
    }

    /// Removes the parts of the model that `options` selects, such as documentation and metadata.
    /// The model needs none of these parts to compute its outputs.
    ///
    /// ```
    /// use sardonyx::edit::StripOptions;
    ///
    /// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/digits/digits.onnx");
    /// let mut model = sardonyx::Model::open(path)?;
    /// let options = StripOptions { metadata: true, ..StripOptions::default() };
    /// let report = model.strip(&options)?;
    /// assert!(report.metadata > 0 && model.metadata().is_empty());
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`EditError::Invalid`] if the stripped model would have errors that the model does not have,
    /// which only the removal of initializers can cause. The model is unchanged then.
    pub fn strip(&mut self, options: &StripOptions) -> Result<StripReport, EditError> {
        let edits = Edit::of_strip(options);
        if edits.iter().all(|edit| edit.rules().is_empty()) {
            return Ok(sardonyx_passes::strip(&mut self.graph, options));
        }
        let before = self.clone();
        let report = sardonyx_passes::strip(&mut self.graph, options);
        match self.check_edits(&before, JobKind::Strip, &edits) {
            Ok(()) => Ok(report),
            Err(invalid) => {
                *self = before;
                Err(EditError::Invalid(invalid))
            }
        }
    }
}

/// Replaces symbolic dimensions in a type by unknown ones, except symbols in `kept`.
fn forget_symbols(ty: &mut TypeProto, kept: &[Symbol]) {
    let mut ty = Some(ty);
    // A loop suffices: a type contains at most one other type with a shape.
    while let Some(kind) = ty.take().and_then(|ty| ty.kind.as_mut()) {
        match kind {
            TypeKind::Tensor { shape, .. } | TypeKind::SparseTensor { shape, .. } => {
                for dim in shape.iter_mut().flat_map(|shape| &mut shape.dims) {
                    if matches!(dim.value, Some(DimValue::Param(name)) if !kept.contains(&name)) {
                        dim.value = None;
                    }
                }
            }
            TypeKind::Sequence { elem_type: inner, .. }
            | TypeKind::Map { value_type: inner, .. }
            | TypeKind::Optional { elem_type: inner, .. } => ty = inner.as_deref_mut(),
            TypeKind::Opaque { .. } => {}
        }
    }
}
