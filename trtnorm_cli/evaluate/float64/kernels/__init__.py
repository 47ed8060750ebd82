"""The tables of float64 kernels: operator → how it is evaluated, of the default domain and of ``microsoft.DOMAIN``."""

from __future__ import annotations

from types import ModuleType

from trtnorm_cli.evaluate.float64.kernels import (
    block_quantization,
    casting,
    convolution,
    elementwise,
    linear,
    microsoft,
    movement,
    normalization,
    pooling,
    qlinear,
    quantization,
    recurrent,
    reductions,
    resize,
    sampling,
    selection,
    sequences,
    spectral,
)
from trtnorm_cli.evaluate.float64.kernels.call import Kernel

IMPLEMENTATIONS: dict[ModuleType, str] = {
    casting: "trtnorm: NumPy astype",
    convolution: "trtnorm: im2col and matmul in NumPy",
    elementwise: "trtnorm: NumPy elementwise",
    linear: "trtnorm: NumPy matmul and einsum",
    microsoft: "trtnorm: NumPy, two passes",
    movement: "trtnorm: NumPy indexing",
    normalization: "trtnorm: NumPy, two passes",
    pooling: "trtnorm: NumPy, window by window element",
    quantization: "trtnorm: NumPy, half to even",
    recurrent: "trtnorm: NumPy, step by step",
    reductions: "trtnorm: NumPy reductions",
    resize: "trtnorm: an interpolation matrix per axis",
    sampling: "trtnorm: NumPy gather of neighbours",
    selection: "trtnorm: NumPy argsort",
    sequences: "trtnorm: Python lists",
    spectral: "trtnorm: numpy.fft",
}

KERNELS: dict[str, Kernel] = {op: kernel for module in IMPLEMENTATIONS for op, kernel in module.KERNELS.items()}
DESCRIPTIONS: dict[str, str] = {op: text for module, text in IMPLEMENTATIONS.items() for op in module.KERNELS}
# These give another view of their first input.
VIEWS = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
# The inputs that a kernel also takes in the type in which they are stored.
TAKES_STORED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "Gemm", "MatMul"), (1,)),
    **dict.fromkeys(("Gather", *VIEWS), (0,)),
}
_CONTRIBUTING = (microsoft, quantization, qlinear, block_quantization)
CONTRIBUTED: dict[tuple[str, str], Kernel] = {
    (microsoft.DOMAIN, op): kernel for module in _CONTRIBUTING for op, kernel in module.CONTRIBUTED.items()
}
