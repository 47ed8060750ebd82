"""Devices that an engine may run on, by the few figures that a roofline needs.

The figures are the makers', each with its source. A profile describes any other device by three numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.suggest import did_you_mean, listing

TYPES = ("float32", "float16", "bfloat16", "int8", "fp8", "fp4")
_KIB, _MIB, _GB, _TERA = 2**10, 2**20, 1e9, 1e12

# The slower type that stands in for one that the device has no rate for.
_COMPUTED_IN = {"fp4": "fp8", "fp8": "float16", "int8": "float16", "bfloat16": "float32", "float16": "float32"}

# The most shared memory of one block, in bytes: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability",
# https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#compute-capabilities
_BLOCK_MEMORY = {
    "7.5": 64 * _KIB,
    "8.0": 163 * _KIB,
    "8.6": 99 * _KIB,
    "8.7": 163 * _KIB,
    "8.9": 99 * _KIB,
    "9.0": 227 * _KIB,
    "12.0": 99 * _KIB,
}

LAUNCH = 1.75e-6  # Seconds: what a small kernel takes in a CUDA graph, fitted on an H200; no data sheet has it.


@dataclass(frozen=True)
class Device:
    """A GPU as a roofline sees it.

    ``bandwidth`` is the data sheet's, in bytes a second of device memory. ``operations`` are a second at the best, by type, a
    multiply-add counted as two, without sparsity. float32 is the rate of TensorFloat-32 where the device has it, which TensorRT
    uses unless ``builder.tf32`` is false, and float16 the rate with float16 sums where that is faster. ``launch`` is the least
    time of a kernel in seconds. ``block_memory`` is the most bytes that one thread block can hold of a row, and ``cache`` the
    second-level cache in bytes.
    """

    name: str
    bandwidth: float
    operations: Mapping[str, float]
    launch: float
    multiprocessors: int
    block_memory: int
    cache: int
    source: str

    def rate(self, kind: str) -> float:
        """Operations a second in a type.

        A type that the device has no rate for is computed in the next one that it has, and an unknown type as float32.
        """
        while kind not in self.operations:
            kind = _COMPUTED_IN.get(kind, "float32")
        return self.operations[kind]


def _device(
    name: str, capability: str, gb_s: float, tera: tuple[float, ...], sizes: tuple[int, float], source: str
) -> tuple[str, Device]:
    """A row of the table: ``tera`` operations in the order of ``TYPES``; ``sizes`` are multiprocessors and cache in MiB."""
    operations = {kind: value * _TERA for kind, value in zip(TYPES, tera, strict=False) if value}
    multiprocessors, cache = sizes
    memory = _BLOCK_MEMORY[capability]
    return name, Device(name, gb_s * _GB, operations, LAUNCH, multiprocessors, memory, int(cache * _MIB), source)


_AMPERE = "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
_ADA = "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
_BLACKWELL = "https://images.nvidia.com/aem-dam/Solutions/geforce/blackwell/nvidia-rtx-blackwell-gpu-architecture.pdf"
_A100 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
_T4 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/t4-tensor-core-datasheet-951643.pdf"
_ORIN = "https://www.nvidia.com/content/dam/en-zz/Solutions/gtcf21/jetson-orin/nvidia-jetson-agx-orin-technical-brief.pdf"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_RTX3060 = "https://www.nvidia.com/en-us/geforce/graphics-cards/30-series/rtx-3060-3060ti/"

# The RTX 3060's tensor rates are those of a multiprocessor and clock in the GA102 paper, times 28 multiprocessors at 1.777 GHz.
# Orin's are its 85 TOPS of dense int8, halved for float16 and again for TensorFloat-32. The A100 is the one with 80 GB on SXM,
# and Orin the AGX module with 64 GB. The H200's cache is what CUDA reports.
DEVICES: Mapping[str, Device] = dict(
    (
        _device("rtx-3060", "8.6", 360, (12.7, 51.0, 25.5, 102), (28, 3), f"{_RTX3060} and {_AMPERE}"),
        _device("rtx-3090", "8.6", 936, (35.6, 142, 71, 284), (82, 6), _AMPERE),
        _device("rtx-4090", "8.9", 1008, (82.6, 330.3, 165.2, 660.6, 660.6), (128, 72), _ADA),
        _device("rtx-5090", "12.0", 1792, (104.8, 419, 209.5, 838, 838, 1676), (170, 96), _BLACKWELL),
        _device("t4", "7.5", 320, (8.1, 65, 0, 130), (40, 4), _T4),
        _device("l4", "8.9", 300, (60, 121, 121, 242.5, 242.5), (58, 48), _L4),
        _device("a100", "8.0", 2039, (156, 312, 312, 624), (108, 40), _A100),
        _device("h200", "9.0", 4800, (494.5, 989.5, 989.5, 1979, 1979), (132, 60), _H200),
        _device("orin", "8.7", 204.8, (21.25, 42.5, 42.5, 85), (16, 4), _ORIN),
    )
)
DEFAULT = "rtx-3060"


def device_named(text: str) -> Device:
    """The device of the table with a name, upper or lower case. Raises UsageProblem with the nearest name and all of them."""
    if (found := DEVICES.get(text.casefold())) is not None:
        return found
    hint = f"one of {listing(DEVICES, 20)}; or describe yours under device: in the profile"
    raise UsageProblem(unknown_device(text), None, hint)


def unknown_device(text: str) -> str:
    """The words for a name that is not in the table, with the nearest that is."""
    return f"no device {text!r} is known{did_you_mean(text, DEVICES)}"


def described_device(bandwidth: float, operations: float | Mapping[str, float], launch: float) -> Device:
    """A device that is not in the table: bytes a second, operations a second in all or by type, and seconds a kernel.

    The rest is taken over from the device of the table with the nearest bandwidth.
    """
    like = min(DEVICES.values(), key=lambda device: max(device.bandwidth / bandwidth, bandwidth / device.bandwidth))
    rates = dict(operations) if isinstance(operations, Mapping) else dict.fromkeys(TYPES, operations)
    rates.setdefault("float32", min(rates.values()))
    source = f"the profile; multiprocessors, block memory and cache as on {like.name}"
    return Device("described", bandwidth, rates, launch, like.multiprocessors, like.block_memory, like.cache, source)
