"""Values as onnxruntime keeps them, and inputs and outputs that are bound to a session."""

from __future__ import annotations

import functools
from typing import Any

from sardonyx._core import ort as _ort
from sardonyx._core import session as _core
from sardonyx._values import SparseTensor as _Sparse
from sardonyx.ort import _errors


def numpy() -> Any:
    """numpy, which values of this module need."""
    import numpy

    return numpy


@functools.cache
def _names() -> dict[str, tuple[int, str]]:
    """By what numpy or ml_dtypes calls a type: its number and its ONNX name."""
    return {dtype: (number, name) for number, name, dtype in _core.element_types()}


def _number_and_name(dtype: Any) -> tuple[int, str]:
    found = _names().get(dtype.name)
    if found is None:
        is_text = dtype.kind in "USO"
        found = _names()["object"] if is_text else (0, "undefined")
    return found


def dtype_of(element_type: Any) -> Any:
    """The dtype of a number of ONNX, of a dtype, or of anything that numpy makes one of."""
    if isinstance(element_type, int) and not isinstance(element_type, bool):
        for number, _, name in _core.element_types():
            if number == element_type:
                try:
                    return numpy().dtype(name)
                except TypeError:
                    import ml_dtypes

                    return numpy().dtype(getattr(ml_dtypes, name))
        raise _refused(f"the element type {element_type} is not one of ONNX")
    return numpy().dtype(element_type)


def demand_cpu(device: str, device_id: int = 0) -> None:
    """Refuses memory of any other device."""
    _ort.demand_device(str(device))


def at_address(address: int, dtype: Any, shape: Any) -> Any:
    """The array that lies at an address of memory."""
    import ctypes

    np = numpy()
    dtype, shape = np.dtype(dtype), tuple(shape)
    count = int(np.prod(shape, dtype=np.int64))
    if dtype.hasobject or count < 0:
        raise _refused(f"an array of {dtype} with the shape {list(shape)} has no address")
    if count == 0:
        return np.empty(shape, dtype)
    if not address:
        raise _refused("the address of the array is 0")
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, np.uint8).view(dtype).reshape(shape)


def _refused(message: str) -> Exception:
    return _errors.made(_errors.InvalidArgument, message, code="input")


class _Capsule:
    """What another package calls a DLPack capsule, with the methods that numpy asks for."""

    def __init__(self, capsule: Any) -> None:
        if type(capsule).__name__ != "PyCapsule":
            raise TypeError(f"expected an object with __dlpack__ or its capsule, not {type(capsule).__name__}")
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        # The CPU. The capsule has the device of its memory too, and numpy refuses any other.
        return 1, 0


class OrtDevice:
    """A device; there is the CPU only."""

    def __init__(self, device_type: int = 0, mem_type: int = 0, device_id: int = 0) -> None:
        self._device_type, self._mem_type, self._device_id = device_type, mem_type, device_id

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int = -1) -> OrtDevice:
        """A device by its name."""
        demand_cpu(ort_device_name)
        return OrtDevice(0, 0, device_id)

    @staticmethod
    def cpu() -> int:
        """The number of the CPU among devices."""
        return 0

    @staticmethod
    def cuda() -> int:
        """The number of CUDA among devices."""
        return 1

    @staticmethod
    def default_memory() -> int:
        """The number of the memory that a device uses."""
        return 0

    def device_type(self) -> int:
        """The number of the kind of device."""
        return self._device_type

    def mem_type(self) -> int:
        """The number of its memory."""
        return self._mem_type

    device_mem_type = mem_type

    def device_vendor_id(self) -> int:
        """The number of its maker: none."""
        return 0

    def device_id(self) -> int:
        """The number among devices of its kind."""
        return self._device_id

    def _get_c_device(self) -> OrtDevice:
        return self


class OrtValue:
    """A value: an array, which it shares with numpy, or a list, a dict, or nothing."""

    def __init__(self, value: Any, numpy_obj: Any = None, session: Any = None) -> None:
        self._value: Any = value._value if isinstance(value, OrtValue) else value
        #: The type that a model declares for it, such as ``seq(tensor(float))``: an empty list does not tell it.
        self._kind: str | None = None

    @classmethod
    def _of_output(cls, value: Any, kind: str) -> OrtValue:
        made = cls(value)
        made._kind = kind
        return made

    @classmethod
    def ortvalue_from_numpy(
        cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """A value over the memory of an array."""
        demand_cpu(device_type)
        if not isinstance(numpy_obj, numpy().ndarray):
            raise _refused(f"the value must be an array of numpy, not {type(numpy_obj).__name__}")
        return cls(numpy_obj)

    @classmethod
    def ortvalue_from_numpy_with_onnx_type(cls, data: Any, onnx_element_type: int) -> OrtValue:
        """A value over the memory of an array, as elements of another type of the same size."""
        dtype = dtype_of(onnx_element_type)
        if dtype.itemsize != data.dtype.itemsize:
            raise _refused(f"elements of {data.dtype} have another size than those of {dtype}")
        return cls(data.view(dtype))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls,
        shape: Any,
        element_type: Any = None,
        device_type: str = "cpu",
        device_id: int = 0,
        vendor_id: int = -1,
    ) -> OrtValue:
        """An array of no particular values."""
        demand_cpu(device_type)
        element_type = numpy().float32 if element_type is None else element_type
        return cls(numpy().empty(tuple(shape), dtype_of(element_type)))

    @classmethod
    def ort_value_from_sparse_tensor(cls, sparse_tensor: Any) -> OrtValue:
        """The value that is a sparse tensor."""
        return cls(sparse_tensor)

    @classmethod
    def from_dlpack(cls, data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """A value over the memory of an object that offers DLPack."""
        array = numpy().from_dlpack(data if hasattr(data, "__dlpack__") else _Capsule(data))
        return cls(array.view(bool) if is_bool_tensor and array.dtype == "uint8" else array)

    @property
    def _ortvalue(self) -> OrtValue:
        # Packages hand it on to what they took from `onnxruntime.capi`, which takes the value itself here.
        return self

    def _get_c_value(self) -> OrtValue:
        return self

    def to_dlpack(self) -> Any:
        """A DLPack capsule of the array; of the value within the value in onnxruntime."""
        return self.numpy().__dlpack__()

    def __dlpack__(self, **options: Any) -> Any:
        return self.numpy().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.numpy().__dlpack_device__()

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return numpy().array(self.numpy(), dtype=dtype, copy=copy)

    def numpy(self) -> Any:
        """The array; RuntimeError for a value that is none."""
        if not self.is_tensor():
            raise RuntimeError("the value is not a tensor")
        return self._value

    def update_inplace(self, data: Any) -> None:
        """Writes the elements of an array into this one."""
        array, data = self.numpy(), getattr(data, "_value", data)
        if not isinstance(data, (numpy().ndarray, numpy().generic)):
            raise TypeError(f"the data must be an array of numpy or an OrtValue, not {type(data).__name__}")
        if data.shape != array.shape or data.dtype != array.dtype:
            raise _refused(
                f"the array is {data.dtype}{list(data.shape)}, and the value is {array.dtype}{list(array.shape)}"
            )
        numpy().copyto(array, data)

    def has_value(self) -> bool:
        """Whether there is anything."""
        return self._value is not None

    def is_tensor(self) -> bool:
        """Whether it is a tensor."""
        return isinstance(self._value, (numpy().ndarray, numpy().generic))

    def is_sparse_tensor(self) -> bool:
        """Whether it is a sparse tensor."""
        return isinstance(self._value, _Sparse)

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence of tensors."""
        items = self._value
        return isinstance(items, list) and not any(isinstance(item, dict) for item in items)

    def as_sparse_tensor(self) -> Any:
        """The sparse tensor; RuntimeError for a value that is none."""
        if not self.is_sparse_tensor():
            raise RuntimeError("the value is not a sparse tensor")
        return self._value

    def device_name(self) -> str:
        """Where it lies."""
        return "cpu"

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self.numpy().ctypes.data

    def shape(self) -> list[int]:
        """The dimensions of the tensor."""
        return list(self.numpy().shape)

    def element_type(self) -> int:
        """The number of the element type in ONNX."""
        return _number_and_name(self.numpy().dtype)[0]

    def tensor_size_in_bytes(self) -> int:
        """Bytes of the elements."""
        return self.numpy().nbytes

    def data_type(self) -> str:
        """The type, such as ``tensor(float)``."""
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
    """Inputs and outputs of runs of a session, which are bound once."""

    # The base class keeps what is bound, by number, as ``run_with_iobinding`` needs it.

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an array to an input."""
        self._bind_input(name, arr_on_cpu)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Any,
        buffer_ptr: int,
    ) -> None:
        """Binds the array that lies at an address to an input; it must stay there."""
        demand_cpu(device_type, device_id)
        self._bind_input(name, at_address(buffer_ptr, dtype_of(element_type), shape))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds a value to an input."""
        self._bind_input(name, ortvalue._value)

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Any = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Asks for an output, which is written to an address if there is one."""
        demand_cpu(device_type, device_id)
        into = None
        if buffer_ptr is not None:
            if element_type is None or shape is None:
                raise _refused(f"the output '{name}' has an address, but no element type or shape")
            into = at_address(buffer_ptr, dtype_of(element_type), shape)
        self._bind_output(name, into)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Has an output written into a value."""
        self._bind_output(name, ortvalue.numpy())

    def synchronize_inputs(self) -> None:
        """Does nothing: values on the CPU are there at once."""

    def synchronize_outputs(self) -> None:
        """Does nothing: values on the CPU are there at once."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order in which they were bound."""
        kinds = list(self._session._kinds.values())
        # Outputs that were bound after the run have no result.
        results = zip(self._output_numbers(), self._results(), strict=False)
        return [OrtValue._of_output(output, kinds[number]) for number, output in results]

    get_outputs_as_ortvaluevector = get_outputs

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as arrays."""
        return self._results()

    def clear_binding_inputs(self) -> None:
        """Takes all bindings of inputs back."""
        self._clear_inputs()

    def clear_binding_outputs(self) -> None:
        """Takes all bindings of outputs back."""
        self._clear_outputs()

    def _write(self, name: str, into: Any, output: Any) -> None:
        """Copies an output into the array that it is bound to, where a run could not write it there."""
        if into.shape != getattr(output, "shape", None) or into.dtype != output.dtype:
            raise _refused(
                f"the output '{name}' is {getattr(output, 'dtype', type(output).__name__)}"
                f"{list(getattr(output, 'shape', []))}, but its memory is {into.dtype}{list(into.shape)}"
            )
        numpy().copyto(into, output)
