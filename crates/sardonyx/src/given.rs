//! Replaces weights and dimensions of a model by values that the caller gives.

use sardonyx_model::{
    DimProto, DimValue, Initializer, ShapeProto, Type, TypeKind, TypeProto, ValueInfo,
};
use sardonyx_runtime::SharedWeights;
use sardonyx_tensor::{DataType, Tensor};

use crate::error::{Error, ErrorKind};
use crate::model::Model;

/// Type and storage of an initializer of the main graph.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct InitializerInfo {
    /// Element type and shape of the initializer; `None` if its element type is unknown.
    pub ty: Option<Type>,
    /// Whether the elements of the initializer are in an external data file.
    pub is_external: bool,
}

impl Model {
    /// Looks up the type and storage of a dense initializer of the main graph by name; `None` if
    /// the main graph has no such initializer.
    ///
    /// ```
    /// # use sardonyx::{Model, tool::ModelExt};
    /// let text = "<ir_version: 10, opset_import: [\"\": 21]>
    ///     g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }";
    /// let model = Model::from_text(text)?;
    /// assert!(!model.initializer("w").unwrap().is_external);
    /// assert!(model.initializer("x").is_none());
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub(crate) fn initializer(&self, name: &str) -> Option<InitializerInfo> {
        let Initializer { tensor, .. } =
            &self.list_main_initializers()[self.find_initializer_index(name)?];
        let elem = tensor.data_type.and_then(DataType::from_number);
        Some(InitializerInfo {
            ty: elem.map(|elem| Type::tensor(elem, tensor.dims.iter().copied())),
            is_external: tensor.is_external(),
        })
    }

    /// Replaces the tensor of an initializer of the main graph. If its elements were in an external
    /// data file, the model no longer needs them there.
    ///
    /// ```
    /// # use sardonyx::{Model, RunOptions, Session, Tensor};
    /// let text = "<ir_version: 10, opset_import: [\"\": 21]>
    ///     g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Mul (x, w) }";
    /// let mut model = Model::from_text(text)?;
    /// model.set_initializer("w", &Tensor::from_vec([2], vec![5f32, 6.0])?)?;
    /// let x = Tensor::from_vec([2], vec![1f32, 1.0])?;
    /// let outputs = Session::new(&model)?.run([("x", x)], &RunOptions::default())?;
    /// assert_eq!(outputs.tensor("y")?.as_slice::<f32>()?, [5.0, 6.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Argument`] if the main graph has no dense initializer called `name`, or if the
    /// element type or shape of `value` differs from the initializer's.
    pub fn set_initializer(&mut self, name: &str, value: &Tensor) -> Result<(), Error> {
        let refused = |what: String| Error::new(ErrorKind::Argument, what);
        let Some(index) = self.find_initializer_index(name) else {
            return Err(refused(format!("the model has no initializer '{name}'")));
        };
        let given = Type::tensor(value.data_type(), value.dims().iter().copied());
        let declared = self.initializer(name).and_then(|found| found.ty);
        if let Some(declared) = declared.filter(|declared| *declared != given) {
            return Err(refused(format!("the initializer '{name}' is {declared}, not {given}"))
                .with_help(
                    "give a tensor of the element type and the shape that the model declares",
                ));
        }
        let proto = self.graph.tensor_proto(value);
        if let Some(main) = self.graph.main {
            let tensor = &mut self.graph.graph_mut(main).initializers[index].tensor;
            tensor.raw_data = proto.raw_data;
            tensor.typed = proto.typed;
            tensor.external_data.clear();
            tensor.data_location = None;
            tensor.skipped = None;
        }
        // The cache of packed weights is keyed by the address of the bytes, which may be reused.
        self.weights = SharedWeights::default();
        Ok(())
    }

    /// Sets the dimensions of main graph inputs that have a denotation such as `DATA_BATCH` and no
    /// fixed size. Returns the number of dimensions set.
    ///
    /// ```
    /// # use sardonyx::{Model, tool::ModelExt};
    /// let text = "<notation: \"full\", ir_version: 10, opset_import: [\"\": 21]>
    ///     g (float[N @<denotation: \"DATA_BATCH\">, 3] x) => (float[N, 3] y) { y = Relu (x) }";
    /// # let mut model = Model::from_text(text)?;
    /// assert_eq!(model.fix_denoted_dims("DATA_BATCH", 8), 1);
    /// assert_eq!(model.inputs()[0].to_string(), "x: float[8, 3]");
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub(crate) fn fix_denoted_dims(&mut self, denotation: &str, size: usize) -> usize {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        let (Some(denotation), Some(main)) =
            (self.graph.symbol(denotation.as_bytes()), self.graph.main)
        else {
            return 0;
        };
        let inputs = &mut self.graph.graph_mut(main).inputs;
        let shapes = inputs.iter_mut().filter_map(|info| info.ty.as_mut()?.innermost_shape_mut());
        let open = shapes.flat_map(|shape| &mut shape.dims).filter(|dim| {
            dim.denotation == Some(denotation) && !matches!(dim.value, Some(DimValue::Value(_)))
        });
        open.map(|dim| dim.value = Some(DimValue::Value(size))).count()
    }

    /// Declares outputs of `DictVectorizer` nodes in the main graph as matrices of one row where
    /// the model declares no shape. ONNX Runtime returns a matrix of one row, while the standard
    /// has one dimension. Returns the number of changed declarations.
    ///
    /// ```
    /// # use sardonyx::{Model, tool::ModelExt};
    /// let text = "<ir_version: 8, opset_import: [\"ai.onnx.ml\": 3]>
    ///     g (map(string, float) x) => (y) {
    ///         y = ai.onnx.ml.DictVectorizer <string_vocabulary = [\"a\", \"b\"]> (x)
    ///     }";
    /// let mut model = Model::from_text(text)?;
    /// assert_eq!(model.declare_dictionary_rows(), 1);
    /// assert_eq!(model.declare_dictionary_rows(), 0);
    /// # Ok::<(), sardonyx::Error>(())
    /// ```
    pub(crate) fn declare_dictionary_rows(&mut self) -> usize {
        let Some(main) = self.graph.main else { return 0 };
        let mut count = 0;
        for node in self.graph.graph(main).nodes.clone() {
            let is_vectorizer = self.graph.display(self.graph.node(node).op_type)
                == "DictVectorizer"
                && self.graph.domain_of(node) == "ai.onnx.ml";
            let Some(&[Some(value)]) = is_vectorizer.then(|| self.graph.outputs(node)) else {
                continue;
            };
            let name = Some(self.graph.value(value).name);
            let graph = self.graph.graph_mut(main);
            let mut infos = graph.outputs.iter_mut().chain(&mut graph.value_info);
            let declared = match infos.find(|info| info.value == Some(value)) {
                Some(info) => info,
                None => {
                    graph.value_info.push(ValueInfo {
                        name,
                        value: Some(value),
                        ..ValueInfo::default()
                    });
                    let Some(info) = graph.value_info.last_mut() else { continue };
                    info
                }
            };
            count += usize::from(declare_row(declared));
        }
        count
    }

    /// Returns the dense initializers of the main graph.
    fn list_main_initializers(&self) -> &[Initializer] {
        self.graph.main.map_or(&[], |main| &self.graph.graph(main).initializers)
    }

    /// Looks up the index of a dense initializer in the main graph by name; `None` if the main
    /// graph has no such initializer.
    fn find_initializer_index(&self, name: &str) -> Option<usize> {
        let name = self.graph.symbol(name.as_bytes())?;
        self.list_main_initializers().iter().position(|found| found.tensor.name == Some(name))
    }
}

/// Declares a tensor as a matrix of one row, unless it has a declared shape. Returns whether the
/// declaration changed.
fn declare_row(info: &mut ValueInfo) -> bool {
    let row = DimProto { value: Some(DimValue::Value(1)), ..DimProto::default() };
    let shape = ShapeProto {
        dims: [row, DimProto::default()].into_iter().collect(),
        ..ShapeProto::default()
    };
    let kind = &mut info.ty.get_or_insert_with(TypeProto::default).kind;
    match kind {
        None => {
            let unknown = ShapeProto::default().unknown;
            *kind = Some(TypeKind::Tensor { elem_type: None, shape: Some(shape), unknown });
            true
        }
        Some(TypeKind::Tensor { shape: declared @ None, .. }) => {
            *declared = Some(shape);
            true
        }
        Some(_) => false,
    }
}
