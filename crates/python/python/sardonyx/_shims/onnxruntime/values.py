"""``OrtValue``, ``OrtDevice`` and ``IOBinding``, with the names and the behaviour of onnxruntime's."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sardonyx._core import ort as _ort
from sardonyx._core import session as _core
from sardonyx._shims.onnxruntime import errors
from sardonyx._values import SparseTensor as _Sparse

if TYPE_CHECKING:
    import types
    from collections.abc import Iterable

    import numpy as np
    from numpy.typing import DTypeLike
    from typing_extensions import CapsuleType, Self

    from sardonyx._shims.onnxruntime.session import InferenceSession
    from sardonyx.typing import ArrayLike, SupportsDLPack, Value, ValueLike

    # Any: shape and element type are known at run time only.
    Array = np.ndarray[Any, np.dtype[Any]]
    Dtype = np.dtype[Any]
    #: The name of a numpy type, a type, a dtype, or the ONNX number of an element type.
    ElementType = DTypeLike | int


# Any: the module itself, which type checkers cannot name.
def numpy() -> Any:
    """Imports numpy late, as ``import sardonyx`` must not import it."""
    import numpy

    return numpy


@functools.cache
def _names() -> dict[str, tuple[int, str]]:
    """Returns the numbers and ONNX names of element types, by their names in numpy or ml_dtypes."""
    return {dtype: (number, name) for number, name, dtype in _core.element_types()}


def _number_and_name(dtype: Dtype) -> tuple[int, str]:
    """Returns the ONNX number and name of a dtype, or 0 and "undefined" for a dtype that ONNX lacks."""
    found = _names().get(dtype.name)
    if found is None:
        is_text = dtype.kind in "USO"
        found = _names()["object"] if is_text else (0, "undefined")
    return found


def dtype_of(element_type: ElementType) -> Dtype:
    """Returns the dtype for an ONNX number, a dtype, or any object that numpy converts to a dtype."""
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        for number, _, name in _core.element_types():
            if number == element_type:
                try:
                    return _as_dtype(name)
                except TypeError:
                    import ml_dtypes

                    return _as_dtype(getattr(ml_dtypes, name))
        raise _input_error(f"the element type {element_type} is not one of ONNX")
    return _as_dtype(element_type)


def _as_dtype(element_type: ElementType) -> Dtype:
    dtype: Dtype = numpy().dtype(element_type)
    return dtype


def demand_cpu(device: str, device_id: int = 0) -> None:
    """Raises an error for a device other than the CPU."""
    _ort.demand_device(str(device))


def array_at(address: int, dtype: Dtype, shape: Iterable[int]) -> Array:
    """Returns an array over the memory at an address, without a copy."""
    import ctypes

    np = numpy()
    shape = tuple(shape)
    array: Array
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.hasobject or count < 0:
        raise _input_error(f"an array of {dtype} with the shape {list(shape)} has no address")
    if count == 0:
        array = np.empty(shape, dtype)
        return array
    if not address:
        raise _input_error("the address of the array is 0")
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    array = np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)
    return array


def _input_error(message: str) -> Exception:
    return errors.make_error(errors.InvalidArgument, message, code="input")


class _Capsule:
    """A bare DLPack capsule with the methods that ``numpy.from_dlpack`` calls."""

    def __init__(self, capsule: CapsuleType) -> None:
        if type(capsule).__name__ != "PyCapsule":
            raise TypeError(f"expected an object with __dlpack__ or its capsule, not {type(capsule).__name__}")
        self._capsule = capsule

    def __dlpack__(self, **_: object) -> CapsuleType:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        # The CPU. The capsule stores the device too, and numpy refuses others.
        return 1, 0


class OrtDevice:
    """A device. The CPU is the only one."""

    def __init__(self, device_type: int = 0, mem_type: int = 0, device_id: int = 0) -> None:
        self._device_type, self._mem_type, self._device_id = device_type, mem_type, device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """Makes the device with this name."""
        demand_cpu(ort_device_name)
        return OrtDevice(0, 0, device_id)

    @staticmethod
    def cpu() -> int:
        """Returns the number of the CPU among types of devices."""
        return 0

    @staticmethod
    def cuda() -> int:
        """Returns the number of CUDA among types of devices."""
        return 1

    @staticmethod
    def default_memory() -> int:
        """Returns the number of the default memory type."""
        return 0

    def device_type(self) -> int:
        """Returns the number of the type of device."""
        return self._device_type

    def mem_type(self) -> int:
        """Returns the number of the memory type."""
        return self._mem_type

    device_mem_type = mem_type

    def device_vendor_id(self) -> int:
        """Returns the PCI vendor ID: 0, as the CPU has none."""
        return 0

    def device_id(self) -> int:
        """Returns the index among devices of the same type."""
        return self._device_id

    def _get_c_device(self) -> OrtDevice:
        return self


class OrtValue:
    """A value of a model: an array that shares memory with numpy, a sparse tensor, a list, a dict, or None."""

    def __init__(self, value: Value, numpy_obj: object = None, session: object = None) -> None:
        self._value: Value = value._value if isinstance(value, OrtValue) else value
        #: Declared type of an output, such as ``seq(tensor(float))``: an empty list has no type of its own.
        self._kind: str | None = None

    @classmethod
    def _from_output(cls, value: Value, kind: str) -> Self:
        output = cls(value)
        output._kind = kind
        return output

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Array, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> Self:
        """Makes a tensor that shares the memory of an array."""
        demand_cpu(device_type)
        if not isinstance(numpy_obj, numpy().ndarray):
            raise _input_error(f"the value must be an array of numpy, not {type(numpy_obj).__name__}")
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Array, onnx_element_type: int) -> Self:
        """Makes a tensor that shares the memory of an array, and interprets it as elements of another type of the same size."""
        dtype = dtype_of(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise _input_error(f"elements of {data.dtype} have another size than those of {dtype}")
        return cls(data.view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Iterable[int],
        element_type: ElementType | None = None,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> Self:
        """Makes a tensor with uninitialized elements."""
        demand_cpu(device_type)
        element_type = numpy().float32 if element_type is None else element_type
        return cls(numpy().empty(tuple(shape), dtype_of(element_type)))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: _Sparse) -> Self:
        """Wraps a sparse tensor."""
        return cls(sparse_tensor)

    @classmethod
    def from_dlpack(cls, data: SupportsDLPack | CapsuleType, is_bool_tensor: bool = False) -> Self:
        """Makes a tensor that shares the memory of an object with DLPack, or of a capsule."""
        array = numpy().from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))
        return cls(array.view(bool) if is_bool_tensor and array.dtype == "uint8" else array)

    @property
    def _ortvalue(self) -> OrtValue:
        # Packages pass it to functions of `onnxruntime.capi`, which take the OrtValue itself here.
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    def to_dlpack(self) -> CapsuleType:
        """Returns a DLPack capsule of the tensor."""
        return self.__dlpack__()

    # Any: the options of numpy's method.
    def __dlpack__(self, **options: Any) -> CapsuleType:
        capsule: CapsuleType = self.numpy().__dlpack__(**options)
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        array: Array = numpy().array(self.numpy(), dtype=dtype, copy=copy)
        return array

    def numpy(self) -> Array:
        """Returns the array that holds the tensor, without a copy. Raises RuntimeError for other values."""
        if not self.is_tensor():
            raise RuntimeError("the value is not a tensor")
        array: Array = self._value
        return array

    def update_inplace(self, data: Array | OrtValue) -> None:
        """Copies the elements of an array of the same type and shape into this tensor."""
        array, data = self.numpy(), getattr(data, "_value", data)
        if not isinstance(data, (numpy().ndarray, numpy().generic)):
            raise TypeError(f"the data must be an array of numpy or an OrtValue, not {type(data).__name__}")
        if data.shape != array.shape or data.dtype != array.dtype:
            raise _input_error(
                f"the array is {data.dtype}{list(data.shape)}, and the value is {array.dtype}{list(array.shape)}"
            )
        numpy().copyto(array, data)

    def has_value(self) -> bool:
        """Whether the value is anything but None."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether the value is a tensor."""
        return isinstance(self._value, (numpy().ndarray, numpy().generic))

    def is_sparse_tensor(self) -> bool:
        """Whether the value is a sparse tensor."""
        return isinstance(self._value, _Sparse)

    def is_tensor_sequence(self) -> bool:
        """Whether the value is a sequence of tensors."""
        items = self._value
        return isinstance(items, list) and not any(isinstance(item, dict) for item in items)

    def as_sparse_tensor(self) -> _Sparse:
        """Returns the sparse tensor. Raises RuntimeError for other values."""
        if not isinstance(self._value, _Sparse):
            raise RuntimeError("the value is not a sparse tensor")
        return self._value

    def device_name(self) -> str:
        """Returns the name of the device that holds the value: ``cpu``."""
        return "cpu"

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        address: int = self.numpy().ctypes.data
        return address

    def shape(self) -> list[int]:
        """Returns the dimensions of the tensor."""
        return list(self.numpy().shape)

    def element_type(self) -> int:
        """Returns the ONNX number of the element type."""
        return _number_and_name(self.numpy().dtype)[0]

    def tensor_size_in_bytes(self) -> int:
        """Returns the size of the elements, in bytes."""
        size: int = self.numpy().nbytes
        return size

    def data_type(self) -> str:
        """Returns the type, such as ``tensor(float)``."""
        if self.is_tensor():
            return f"tensor({_number_and_name(self._value.dtype)[1]})"
        if self.is_sparse_tensor():
            return f"sparse_tensor({_number_and_name(self._value.values.dtype)[1]})"
        if self.is_tensor_sequence() and self._value:
            return f"seq({OrtValue(self._value[0]).data_type()})"
        if self._kind is not None:
            return self._kind
        raise RuntimeError("the type of the value is not known")


class IOBinding(_ort.Binding):
    """Inputs and outputs that are bound once, for many runs of a session."""

    # The base class stores bindings by the number of the port, as ``run_with_iobinding`` needs them.

    def bind_cpu_input(self, name: str, arr_on_cpu: ArrayLike) -> None:
        """Binds an array to an input."""
        self._bind_input(name, arr_on_cpu)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: ElementType,
        shape: Iterable[int],
        buffer_ptr: int,
    ) -> None:
        """Binds the tensor at a memory address to an input. The memory must outlive the runs."""
        demand_cpu(device_type, device_id)
        self._bind_input(name, array_at(buffer_ptr, dtype_of(element_type), shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an OrtValue to an input."""
        self._bind_input(name, ortvalue._value)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: ElementType | None = None,
        shape: Iterable[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output: to the memory at an address, or to a new array in each run."""
        demand_cpu(device_type, device_id)
        into = None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise _input_error(f"the output '{name}' has an address, but no element type or shape")
            into = array_at(buffer_ptr, dtype_of(element_type), shape)
        self._bind_output(name, into)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to the memory of an OrtValue."""
        self._bind_output(name, ortvalue.numpy())

    def synchronize_inputs(self) -> None:
        """Does nothing: values on the CPU are there at once."""

    def synchronize_outputs(self) -> None:
        """Does nothing: values on the CPU are there at once."""

    def get_outputs(self) -> list[OrtValue]:
        """Returns the outputs of the last run, in the order in which they were bound."""
        session: InferenceSession = self._session  # type: ignore[assignment]  # No other class has this base.
        kinds = list(session._kinds.values())
        # Outputs that were bound after the run have no result.
        results = zip(self._output_numbers(), self._results(), strict=False)
        return [OrtValue._from_output(output, kinds[number]) for number, output in results]

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[Value]:
        """Returns the outputs of the last run as arrays."""
        return self._results()

    def clear_binding_inputs(self) -> None:
        """Removes all bindings of inputs."""
        self._clear_inputs()

    def clear_binding_outputs(self) -> None:
        """Removes all bindings of outputs."""
        self._clear_outputs()

    def _write(self, name: str, into: Array, output: Value) -> None:
        """Copies an output into the array that it is bound to. The core calls it if a run could not write there."""
        if into.shape != getattr(output, "shape", None) or into.dtype != output.dtype:
            raise _input_error(
                f"the output '{name}' is {getattr(output, 'dtype', type(output).__name__)}"
                f"{list(getattr(output, 'shape', []))}, but its memory is {into.dtype}{list(into.shape)}"
            )
        numpy().copyto(into, output)
