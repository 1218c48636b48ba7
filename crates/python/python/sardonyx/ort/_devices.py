"""Devices and their memory, as onnxruntime describes them. Sardonyx has one device, the CPU, and allocates by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sardonyx._core import __version__ as _sardonyx_version
from sardonyx._core import ort as _core
from sardonyx.ort import _errors
from sardonyx.ort._options import Number


class OrtMemType(Number):
    """What memory is used for by an execution provider."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtAllocatorType(Number):
    """How memory is allocated."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtDeviceMemoryType(Number):
    """Which memory of a device is meant."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(Number):
    """The kind of device that has a memory."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtHardwareDeviceType(Number):
    """The kind of a device."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtDeviceVendorId(Number):
    """Makers of devices, by their numbers on the PCI bus."""

    NONE = 0x0000
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtExecutionProviderDevicePolicy(Number):
    """Which device is preferred. Accepted and ignored: there is the CPU only."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtSparseFormat(Number):
    """How the positions of a sparse tensor are stored."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class OrtMemoryInfo:
    """Describes the memory of a device. Runs use memory of the CPU whatever it says."""

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
        """Describes the memory of a device by kind and maker; the CPU only."""
        if OrtMemoryInfoDeviceType(device_type) != OrtMemoryInfoDeviceType.CPU:
            raise _core.refusal("memory kind", str(device_type))
        info = cls(_core.CPU_MEMORY, allocator_type, device_id, OrtMemType.DEFAULT)
        info.name, info.device_mem_type, info.device_vendor_id = name, OrtDeviceMemoryType(mem_type), int(vendor_id)
        return info


class OrtArenaCfg:
    """Options of an arena of memory. Accepted and ignored: Sardonyx plans the memory of a run ahead."""

    max_mem = 0
    arena_extend_strategy = initial_chunk_size_bytes = max_dead_bytes_per_chunk = -1
    initial_growth_chunk_size_bytes = max_power_of_two_extend_bytes = -1

    def __init__(self, *options: Any) -> None:
        if len(options) == 1 and isinstance(options[0], Mapping):
            given = dict(options[0])
        elif len(options) == 4:
            given = dict(zip(_ARENA[:4], options, strict=True))
        else:
            raise TypeError(f"OrtArenaCfg takes 4 numbers or a dict, not {len(options)} arguments")
        for name, value in given.items():
            if name not in _ARENA:
                raise RuntimeError(f"an arena has no option '{name}'; it has {', '.join(_ARENA)}")
            setattr(self, name, int(value))


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
    """Accepted and ignored: Sardonyx plans the memory of a run ahead."""
    _demand(memory_info, OrtMemoryInfo)


def create_and_register_allocator_v2(
    provider: str, memory_info: OrtMemoryInfo, options: Mapping[str, str], arena: OrtArenaCfg | None
) -> None:
    """Accepted and ignored for the execution provider of the CPU, and refused for others."""
    _demand(memory_info, OrtMemoryInfo)
    _core.demand_provider(provider)


def _demand(value: Any, kind: type) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"expected {kind.__name__}, not {type(value).__name__}")


class OrtHardwareDevice:
    """A device of the machine: the CPU."""

    type = OrtHardwareDeviceType.CPU
    vendor = ""
    vendor_id = 0
    device_id = 0

    @property
    def metadata(self) -> dict[str, str]:
        """Facts about the device: none."""
        return {}


class OrtEpDevice:
    """A device together with the execution provider that uses it."""

    ep_name = _core.CPU_PROVIDER
    ep_vendor = _core.VENDOR
    device = OrtHardwareDevice()

    @property
    def ep_metadata(self) -> dict[str, str]:
        """Facts about the execution provider: the release of Sardonyx."""
        return {"version": _sardonyx_version}

    @property
    def ep_options(self) -> dict[str, str]:
        """Options of the execution provider: none."""
        return {}

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo:
        """Describes the memory of the device."""
        return cpu_memory()

    def create_sync_stream(self, options: Mapping[str, str] | None = None) -> None:
        """Refused: values on the CPU need no stream."""
        raise _core.refusal("stream")


def cpu_memory() -> OrtMemoryInfo:
    """Describes the memory that inputs and outputs lie in."""
    return OrtMemoryInfo(_core.CPU_MEMORY, OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)


def copy_tensors(src: Any, dst: Any, stream: Any = None) -> None:
    """Copies values into the memory of others, one by one."""
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)


def get_ep_devices() -> list[OrtEpDevice]:
    """Returns the devices that models run on: the CPU."""
    return [OrtEpDevice()]


def register_execution_provider_library(name: str, path: str) -> None:
    """Refused: libraries of execution providers are compiled for onnxruntime."""
    raise _core.refusal("provider library", str(path), str(name))


def unregister_execution_provider_library(name: str) -> None:
    """Refused: no library can be registered."""
    raise _errors.made(
        _errors.Fail, f"no library of an execution provider '{name}' is registered", code="argument"
    )
