//! Types of values: the objects `OrtTypeInfo` and `OrtTensorTypeAndShapeInfo`, and others for
//! containers.

use std::ffi::{CString, c_char, c_int};
use std::ptr;

use sardonyx::value::TensorType;
use sardonyx::{DataType, Port, Type, ValueType};
use sardonyx_ort::ports::{Size, sizes, tensor_type};

use crate::failure::to_c_string;
use crate::failure::{Error, StatusPointer, answer, answer_or, argument, demand, release};
use crate::handles::{Handle, Kept, Object, give};
use crate::pointers::{Array, Out};

/// Numbers of the kinds of values, `ONNXType`.
pub(crate) mod kind {
    use std::ffi::c_int;

    pub(crate) const TENSOR: c_int = 1;
    pub(crate) const SEQUENCE: c_int = 2;
    pub(crate) const MAP: c_int = 3;
    pub(crate) const OPAQUE: c_int = 4;
    pub(crate) const SPARSE: c_int = 5;
    pub(crate) const OPTIONAL: c_int = 6;
}

/// Element types whose numbers in the C header differ from those of ONNX.
const OTHER_NUMBERS: [(DataType, c_int); 3] =
    [(DataType::Uint2, 24), (DataType::Int2, 25), (DataType::Float8e8m0, 26)];

/// Greatest number of an element type that is that of ONNX.
const LAST_EQUAL_NUMBER: c_int = 23;

/// Returns the number of an element type in the C header: 0 for one that it does not have.
pub(crate) fn to_number(data_type: DataType) -> c_int {
    let other = OTHER_NUMBERS.iter().find(|(other, _)| *other == data_type);
    match other {
        Some((_, number)) => *number,
        None if data_type.number() <= LAST_EQUAL_NUMBER => data_type.number(),
        None => 0,
    }
}

/// Returns the element type of a number in the C header.
///
/// # Errors
///
/// No element type has the number.
pub(crate) fn to_data_type(number: c_int) -> Result<DataType, Error> {
    let other = OTHER_NUMBERS.iter().find(|(_, other)| *other == number);
    let found = match other {
        Some((data_type, _)) => Some(*data_type),
        None => DataType::from_number(number).filter(|_| number <= LAST_EQUAL_NUMBER),
    };
    found.ok_or_else(|| argument(format!("no element type has the number {number}")))
}

/// Number of an element type that is not set, which new [`TensorInfo`]s have.
const UNDEFINED: c_int = 0;

/// Element type and shape, `OrtTensorTypeAndShapeInfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorInfo {
    pub(crate) element: c_int,
    /// Sizes, with -1 for an unknown one.
    pub(crate) dims: Vec<i64>,
    /// Names of sizes, empty for a size without one.
    pub(crate) names: Vec<CString>,
    has_shape: bool,
}

impl Object for TensorInfo {
    const NAME: &'static str = "OrtTensorTypeAndShapeInfo";
}

impl Default for TensorInfo {
    fn default() -> Self {
        TensorInfo { element: UNDEFINED, dims: Vec::new(), names: Vec::new(), has_shape: true }
    }
}

impl TensorInfo {
    /// Describes a tensor of known sizes.
    pub(crate) fn from_dims(element: DataType, dims: &[usize]) -> TensorInfo {
        let mut info = TensorInfo { element: to_number(element), ..TensorInfo::default() };
        info.set_dims(dims.iter().map(|dim| i64::try_from(*dim).unwrap_or(i64::MAX)).collect());
        info
    }

    fn from_type(ty: &TensorType) -> TensorInfo {
        let dims = ty.shape.iter().flatten().map(|dim| match dim.known() {
            Some(size) => Size::Known(size),
            None => dim.as_symbol().map_or(Size::Unknown, |name| Size::Text(name.to_string())),
        });
        let mut info = TensorInfo::from_sizes(ty.elem, &dims.collect::<Vec<_>>());
        info.has_shape = ty.shape.is_some();
        info
    }

    fn from_sizes(element: Option<DataType>, sizes: &[Size]) -> TensorInfo {
        TensorInfo {
            element: element.map_or(UNDEFINED, to_number),
            dims: sizes
                .iter()
                .map(|size| if let Size::Known(size) = size { *size } else { -1 })
                .collect(),
            names: sizes
                .iter()
                .map(|size| {
                    if let Size::Text(name) = size { to_c_string(name) } else { CString::default() }
                })
                .collect(),
            has_shape: true,
        }
    }

    fn set_dims(&mut self, dims: Vec<i64>) {
        self.names = vec![CString::default(); dims.len()];
        self.dims = dims;
        self.has_shape = true;
    }

    /// Returns the type with the sizes.
    ///
    /// # Errors
    ///
    /// An element type without number.
    pub(crate) fn to_type(&self) -> Result<Type, Error> {
        let element = to_data_type(self.element)?;
        if !self.has_shape {
            return Ok(Type::unranked(element));
        }
        let dims = self.dims.iter().zip(&self.names).map(|(size, name)| {
            match name.to_str().unwrap_or_default() {
                _ if *size >= 0 => sardonyx::Dim::Known(*size),
                "" => sardonyx::Dim::Unknown,
                name => sardonyx::Dim::parse(name),
            }
        });
        Ok(Type::tensor(element, dims))
    }
}

/// Type of a map, `OrtMapTypeInfo`.
#[derive(Debug)]
pub(crate) struct MapInfo {
    key: DataType,
    value: Type,
}

impl Object for MapInfo {
    const NAME: &'static str = "OrtMapTypeInfo";
}

/// Type of a sequence, `OrtSequenceTypeInfo`.
#[derive(Debug)]
pub(crate) struct SequenceInfo(Type);

impl Object for SequenceInfo {
    const NAME: &'static str = "OrtSequenceTypeInfo";
}

/// Type of a value that may be missing, `OrtOptionalTypeInfo`.
#[derive(Debug)]
pub(crate) struct OptionalInfo(Type);

impl Object for OptionalInfo {
    const NAME: &'static str = "OrtOptionalTypeInfo";
}

/// Type of a value, `OrtTypeInfo`.
#[derive(Debug)]
pub(crate) struct TypeInfo {
    pub(crate) ty: Type,
    content: Content,
}

/// Details of a type by its kind.
#[derive(Debug)]
enum Content {
    Tensor(Kept<TensorInfo>),
    Map(Kept<MapInfo>),
    Sequence(Kept<SequenceInfo>),
    Optional(Kept<OptionalInfo>),
    Opaque,
}

impl Object for TypeInfo {
    const NAME: &'static str = "OrtTypeInfo";
}

impl TypeInfo {
    /// Describes a type.
    pub(crate) fn from_type(ty: &Type) -> TypeInfo {
        let content = match ty {
            Type::Tensor(tensor) | Type::SparseTensor(tensor) => {
                Content::Tensor(Kept::new(TensorInfo::from_type(tensor)))
            }
            Type::Map(key, value) => {
                Content::Map(Kept::new(MapInfo { key: *key, value: (**value).clone() }))
            }
            Type::Sequence(element) => {
                Content::Sequence(Kept::new(SequenceInfo((**element).clone())))
            }
            Type::Optional(element) => {
                Content::Optional(Kept::new(OptionalInfo((**element).clone())))
            }
            Type::Opaque { .. } => Content::Opaque,
        };
        TypeInfo { ty: ty.clone(), content }
    }

    /// Describes the type of a tensor and keeps names of sizes that are known, for which [`Type`]
    /// has no place.
    ///
    /// # Errors
    ///
    /// An element type without number.
    pub(crate) fn from_tensor(info: &TensorInfo) -> Result<TypeInfo, Error> {
        let content = Content::Tensor(Kept::new(info.clone()));
        Ok(TypeInfo { ty: info.to_type()?, content })
    }

    /// Describes an input or output. `marks` are the texts of the model that mark unknown sizes,
    /// each with its axis.
    pub(crate) fn from_port(port: &Port, marks: &[(usize, String)]) -> TypeInfo {
        let unknown = Type::Tensor(TensorType::default());
        let ty = port.ty().unwrap_or(&unknown);
        let mut info = TypeInfo::from_type(ty);
        if let (Content::Tensor(_), Some(tensor)) = (&info.content, tensor_type(ty)) {
            let mut described = TensorInfo::from_sizes(tensor.elem, &sizes(port, marks));
            described.has_shape = tensor.shape.is_some();
            info.content = Content::Tensor(Kept::new(described));
        }
        info
    }

    /// Returns the number of the kind of the type.
    pub(crate) fn kind(&self) -> c_int {
        match self.ty {
            Type::Tensor(_) => kind::TENSOR,
            Type::SparseTensor(_) => kind::SPARSE,
            Type::Sequence(_) => kind::SEQUENCE,
            Type::Map(..) => kind::MAP,
            Type::Optional(_) => kind::OPTIONAL,
            Type::Opaque { .. } => kind::OPAQUE,
        }
    }
}

/// Returns a type of this kind, without sizes.
pub(crate) fn to_type(ty: &ValueType) -> Type {
    Type::from(ty)
}

pub(crate) extern "C" fn cast_type_info_to_tensor_info(
    info: Handle<TypeInfo>,
    out: Out<*const TensorInfo>,
) -> StatusPointer {
    answer("CastTypeInfoToTensorInfo", || {
        let Content::Tensor(tensor) = &info.get()?.content else { return out.set(ptr::null()) };
        out.set(tensor.pointer())
    })
}

pub(crate) extern "C" fn cast_type_info_to_map_type_info(
    info: Handle<TypeInfo>,
    out: Out<*const MapInfo>,
) -> StatusPointer {
    answer("CastTypeInfoToMapTypeInfo", || {
        let Content::Map(map) = &info.get()?.content else { return out.set(ptr::null()) };
        out.set(map.pointer())
    })
}

pub(crate) extern "C" fn cast_type_info_to_sequence_type_info(
    info: Handle<TypeInfo>,
    out: Out<*const SequenceInfo>,
) -> StatusPointer {
    answer("CastTypeInfoToSequenceTypeInfo", || {
        let Content::Sequence(sequence) = &info.get()?.content else {
            return out.set(ptr::null());
        };
        out.set(sequence.pointer())
    })
}

pub(crate) extern "C" fn cast_type_info_to_optional_type_info(
    info: Handle<TypeInfo>,
    out: Out<*const OptionalInfo>,
) -> StatusPointer {
    answer("CastTypeInfoToOptionalTypeInfo", || {
        let Content::Optional(optional) = &info.get()?.content else {
            return out.set(ptr::null());
        };
        out.set(optional.pointer())
    })
}

pub(crate) extern "C" fn get_onnx_type_from_type_info(
    info: Handle<TypeInfo>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("GetOnnxTypeFromTypeInfo", || out.set(info.get()?.kind()))
}

pub(crate) extern "C" fn get_denotation_from_type_info(
    info: Handle<TypeInfo>,
    denotation: Out<*const c_char>,
    len: Out<usize>,
) -> StatusPointer {
    answer("GetDenotationFromTypeInfo", || {
        info.get()?;
        denotation.set(c"".as_ptr())?;
        len.set(0)
    })
}

pub(crate) extern "C" fn get_map_key_type(info: Handle<MapInfo>, out: Out<c_int>) -> StatusPointer {
    answer("GetMapKeyType", || out.set(to_number(info.get()?.key)))
}

pub(crate) extern "C" fn get_map_value_type(
    info: Handle<MapInfo>,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("GetMapValueType", || {
        let out = out.demand()?;
        out.set(give(TypeInfo::from_type(&info.get()?.value)))
    })
}

pub(crate) extern "C" fn get_sequence_element_type(
    info: Handle<SequenceInfo>,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("GetSequenceElementType", || {
        let out = out.demand()?;
        out.set(give(TypeInfo::from_type(&info.get()?.0)))
    })
}

pub(crate) extern "C" fn get_optional_contained_type_info(
    info: Handle<OptionalInfo>,
    out: Out<*mut TypeInfo>,
) -> StatusPointer {
    answer("GetOptionalContainedTypeInfo", || {
        let out = out.demand()?;
        out.set(give(TypeInfo::from_type(&info.get()?.0)))
    })
}

pub(crate) extern "C" fn create_tensor_type_and_shape_info(
    out: Out<*mut TensorInfo>,
) -> StatusPointer {
    answer("CreateTensorTypeAndShapeInfo", || {
        let out = out.demand()?;
        out.set(give(TensorInfo::default()))
    })
}

pub(crate) extern "C" fn set_tensor_element_type(
    mut info: Handle<TensorInfo>,
    element: c_int,
) -> StatusPointer {
    answer("SetTensorElementType", || {
        if element != UNDEFINED {
            to_data_type(element)?;
        }
        info.change()?.element = element;
        Ok(())
    })
}

pub(crate) extern "C" fn set_dimensions(
    mut info: Handle<TensorInfo>,
    dims: Array<i64>,
    count: usize,
) -> StatusPointer {
    answer("SetDimensions", || {
        let dims = dims.read(count, "sizes")?.to_vec();
        info.change()?.set_dims(dims);
        Ok(())
    })
}

pub(crate) extern "C" fn set_symbolic_dimensions(
    mut info: Handle<TensorInfo>,
    names: Array<crate::pointers::Text>,
    count: usize,
) -> StatusPointer {
    answer("SetSymbolicDimensions", || {
        let names = names.read(count, "names")?;
        let names = names.iter().map(|name| to_c_string(&name.optional().unwrap_or_default()));
        let info = info.change()?;
        demand(info.dims.len() == count, || {
            format!("there are {count} names, but the shape has {} sizes", info.dims.len())
        })?;
        info.names = names.collect();
        Ok(())
    })
}

pub(crate) extern "C" fn get_tensor_element_type(
    info: Handle<TensorInfo>,
    out: Out<c_int>,
) -> StatusPointer {
    answer("GetTensorElementType", || out.set(info.get()?.element))
}

pub(crate) extern "C" fn get_dimensions_count(
    info: Handle<TensorInfo>,
    out: Out<usize>,
) -> StatusPointer {
    answer("GetDimensionsCount", || out.set(info.get()?.dims.len()))
}

pub(crate) extern "C" fn get_dimensions(
    info: Handle<TensorInfo>,
    dims: Out<i64>,
    count: usize,
) -> StatusPointer {
    answer("GetDimensions", || {
        let info = info.get()?;
        dims.set_all(&info.dims[..info.dims.len().min(count)])
    })
}

pub(crate) extern "C" fn get_symbolic_dimensions(
    info: Handle<TensorInfo>,
    names: Out<*const c_char>,
    count: usize,
) -> StatusPointer {
    answer("GetSymbolicDimensions", || {
        let found: Vec<*const c_char> =
            info.get()?.names.iter().take(count).map(|name| name.as_ptr()).collect();
        names.set_all(&found)
    })
}

pub(crate) extern "C" fn get_tensor_shape_element_count(
    info: Handle<TensorInfo>,
    out: Out<usize>,
) -> StatusPointer {
    answer("GetTensorShapeElementCount", || {
        let info = info.get()?;
        let count = info
            .dims
            .iter()
            .try_fold(1usize, |count, dim| count.checked_mul(usize::try_from(*dim).ok()?));
        let count = count.ok_or_else(|| {
            argument(format!("the shape {:?} has no number of elements", info.dims))
        })?;
        out.set(count)
    })
}

pub(crate) extern "C" fn tensor_type_and_shape_has_shape(info: Handle<TensorInfo>) -> bool {
    answer_or("TensorTypeAndShape_HasShape", false, || Ok(info.get()?.has_shape))
}

pub(crate) extern "C" fn release_tensor_type_and_shape_info(info: Handle<TensorInfo>) {
    release("ReleaseTensorTypeAndShapeInfo", info);
}

pub(crate) extern "C" fn release_type_info(info: Handle<TypeInfo>) {
    release("ReleaseTypeInfo", info);
}

/// Frees nothing: the type belongs to the `OrtTypeInfo` that it came from.
pub(crate) extern "C" fn release_map_type_info(info: Handle<MapInfo>) {
    answer_or("ReleaseMapTypeInfo", (), || info.optional().map(|_| ()));
}

/// Frees nothing: the type belongs to the `OrtTypeInfo` that it came from.
pub(crate) extern "C" fn release_sequence_type_info(info: Handle<SequenceInfo>) {
    answer_or("ReleaseSequenceTypeInfo", (), || info.optional().map(|_| ()));
}
