"""Descriptions of devices and their memory. Sardonyx has one device, the CPU, and manages memory by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from sardonyx._core import __version__ as _sardonyx_version
from sardonyx._core import ort as _core
from sardonyx._shims.onnxruntime import errors
from sardonyx._shims.onnxruntime.options import Number

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sardonyx._shims.onnxruntime.values import OrtValue


class OrtMemType(Number):
    """Use that an execution provider makes of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtAllocatorType(Number):
    """Kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtDeviceMemoryType(Number):
    """Kinds of memory of a device."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(Number):
    """Kinds of devices that memory belongs to."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtHardwareDeviceType(Number):
    """Kinds of devices."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtDeviceVendorId(Number):
    """Vendors of devices, by PCI vendor ID."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtExecutionProviderDevicePolicy(Number):
    """Policies for the choice of a device. Accepted and ignored: there is the CPU only."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtSparseFormat(Number):
    """Storage formats of sparse tensors."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtMemoryInfo:
    """Description of the memory of a device. Runs use memory of the CPU, whatever is described."""

    name = _core.CPU_MEMORY
    device_id = device_vendor_id = 0
    allocator_type = OrtAllocatorType.ORT_DEVICE_ALLOCATOR
    mem_type = OrtMemType.DEFAULT
    device_mem_type = OrtDeviceMemoryType.DEFAULT

    def __init__(self, name: str, allocator_type: OrtAllocatorType, id: int, mem_type: OrtMemType) -> None:
        _core.demand_memory(name)
        self.device_id = int(id)
        self.allocator_type, self.mem_type = OrtAllocatorType(allocator_type), OrtMemType(mem_type)

    @classmethod
    def create_v2(
        cls,
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Describes the memory of a device by kind and vendor. Refuses all devices but the CPU."""
        if OrtMemoryInfoDeviceType(device_type) != OrtMemoryInfoDeviceType.CPU:
            raise _core.refusal("memory kind", str(device_type))
        info = cls(_core.CPU_MEMORY, allocator_type, device_id, OrtMemType.DEFAULT)
        info.name, info.device_mem_type, info.device_vendor_id = name, OrtDeviceMemoryType(mem_type), int(vendor_id)
        return info


class OrtArenaCfg:
    """Options of an arena allocator. Accepted and ignored: Sardonyx plans the memory of a run ahead."""

    max_mem = 0
    arena_extend_strategy = initial_chunk_size_bytes = max_dead_bytes_per_chunk = -1
    initial_growth_chunk_size_bytes = max_power_of_two_extend_bytes = -1

    def __init__(self, *options: Mapping[str, int] | int) -> None:
        if len(options) == 1 and isinstance(options[0], Mapping):
            given: dict[str, object] = dict(options[0])
        elif len(options) == 4:
            given = dict(zip(_ARENA[:4], options, strict=True))
        else:
            raise TypeError(f"OrtArenaCfg takes 4 numbers or a dict, not {len(options)} arguments")
        for name, value in given.items():
            if name not in _ARENA:
                raise RuntimeError(f"an arena has no option '{name}'; it has {', '.join(_ARENA)}")
            setattr(self, name, int(value))  # type: ignore[call-overload]  # int() raises for others.


#: Options of an arena, in the order in which a call gives the first four.
_ARENA = (
    "max_mem",
    "arena_extend_strategy",
    "initial_chunk_size_bytes",
    "max_dead_bytes_per_chunk",
    "initial_growth_chunk_size_bytes",
    "max_power_of_two_extend_bytes",
)


def create_and_register_allocator(memory_info: OrtMemoryInfo, arena: OrtArenaCfg | None) -> None:
    """Ignores the allocator: Sardonyx plans the memory of a run ahead."""
    _demand(memory_info, OrtMemoryInfo)


def create_and_register_allocator_v2(
    provider: str, memory_info: OrtMemoryInfo, options: Mapping[str, str], arena: OrtArenaCfg | None
) -> None:
    """Ignores the allocator: Sardonyx plans the memory of a run ahead. Raises an error for other providers than the CPU's."""
    _demand(memory_info, OrtMemoryInfo)
    _core.demand_provider(provider)


def _demand(value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")


class OrtHardwareDevice:
    """The CPU, the only device of the machine that is listed."""

    type = OrtHardwareDeviceType.CPU
    vendor = ""
    vendor_id = 0
    device_id = 0

    @property
    def metadata(self) -> dict[str, str]:
        """Properties of the device: none."""
        return {}


class OrtEpDevice:
    """The CPU together with its execution provider."""

    ep_name = _core.CPU_PROVIDER
    ep_vendor = _core.VENDOR
    device = OrtHardwareDevice()

    @property
    def ep_metadata(self) -> dict[str, str]:
        """Properties of the execution provider: the release of Sardonyx."""
        return {"version": _sardonyx_version}

    @property
    def ep_options(self) -> dict[str, str]:
        """Options of the execution provider: none."""
        return {}

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """Describes the memory of the device."""
        return cpu_memory()

    def create_sync_stream(self, options: Mapping[str, str] | None = None) -> NoReturn:
        """Refuses: values on the CPU need no stream."""
        raise _core.refusal("stream")


def cpu_memory() -> OrtMemoryInfo:
    """Describes the memory of inputs and outputs."""
    return OrtMemoryInfo(_core.CPU_MEMORY, OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: object = None) -> None:
    """Copies each tensor of ``src`` into the memory of the tensor of ``dst`` at the same index."""
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def get_ep_devices() -> list[OrtEpDevice]:
    """Returns the devices on which models run: the CPU."""
    return [OrtEpDevice()]


def register_execution_provider_library(name: str, path: str) -> NoReturn:
    """Refuses: libraries of execution providers are compiled for onnxruntime."""
    raise _core.refusal("provider library", str(path), str(name))


def unregister_execution_provider_library(name: str) -> NoReturn:
    """Refuses: no library can be registered."""
    raise errors.make_error(
        errors.Fail, f"no library of an execution provider '{name}' is registered", code="argument"
    )
