"""The numbers by which a discrete Fourier transform of a fixed length multiplies, and what both of its operators ask."""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts.arithmetic import HALF_TYPES, data_type
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match

# 128 MiB in float32. A transform by a table takes time with the square of its length.
_MOST_NUMBERS = 1 << 25
# The numbers of a real value and of a complex one.
REAL, COMPLEX = 1, 2
_TYPES = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, *HALF_TYPES)


def data_are_floats(m: Match) -> str | None:
    """the data are floats of known rank."""
    is_known = data_type(m) in _TYPES and m.shape("x") is not None
    return None if is_known else f"type or rank of the data of {describe(m.root)} is not known"


def data_are_real_or_complex(m: Match) -> str | None:
    """the last axis of the data holds one number for real values or two for complex ones."""
    shape = m.shape("x") or ()
    if len(shape) > 1 and shape[-1] in (REAL, COMPLEX):
        return None
    return f"the last axis of the data of {describe(m.root)} holds neither real nor complex numbers"


def components(m: Match) -> int:
    """One number for a real value, two for a complex one."""
    count = (m.shape("x") or ("",))[-1]
    assert isinstance(count, int), "data_are_real_or_complex looked"
    return count


def is_too_large(count: int, parts: int, length: int, inverse: bool = False, onesided: bool = False) -> str | None:
    """The reason for refusing a :func:`table`."""
    bins = length // 2 + 1 if onesided and not inverse else length
    size = count * parts * bins * (REAL if onesided and inverse else COMPLEX)
    return None if size <= _MOST_NUMBERS else f"its table would have {size:,} numbers, more than {_MOST_NUMBERS:,}"


def table(count: int, parts: int, length: int, inverse: bool = False, onesided: bool = False) -> np.ndarray:
    """The result of the transform of ``length`` for each of ``count`` values alone, in float64.

    Shape [count, ``parts``, bins, 2], or [.., 1] for real results. Values behind ``length`` give nothing, and missing ones
    are zeros.
    """
    unit = np.eye(count)
    values = np.stack([unit, 1j * unit][:parts], axis=1) if parts == COMPLEX else unit[:, None]
    if inverse and onesided:
        return np.fft.irfft(values, n=length, axis=-1)[..., None]
    spectrum = (np.fft.ifft if inverse else np.fft.fft)(values, n=length, axis=-1)
    kept = spectrum[..., : length // 2 + 1] if onesided else spectrum
    return np.stack([kept.real, kept.imag], axis=-1)
