"""The constants that a BatchNormalization becomes: a scale and a shift of each channel, or other weights of a product.

    y = s·x + t      s = γ/√(σ²+ε)      t = β − μ·s
    s·(w∗x + b) + t = (s·w)∗x + (s·b + t)

Source: Jacob et al. 2018, section 3.2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.computed_constants import is_little
from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.kernels.normalization import TRAINING_MODE_SINCE
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.stored import read_part
from trtnorm_cli.onnx_model.wire import FilePart

# Five roundings to float32: of σ²+ε, its root, the quotient, the product and the difference. Weights are multiplied by s in
# float32 to look at them, which is one more.
_ROUNDING = 6 * 2.0**-24
_PARAMETERS = 4
# Weights at a time: what is computed in several steps stays in the processor's caches.
_BLOCK = 1 << 15
_WITH_BIAS = 3
FLOAT32 = np.dtype("<f4")


@dataclass(frozen=True)
class Normalized:
    """The scale and the shift [C] of a BatchNormalization, the sum of the shift's terms without their signs, and its result."""

    scale: np.ndarray
    shift: np.ndarray
    terms: np.ndarray
    result: Any

    @staticmethod
    def of(call: Call, result: Any) -> Normalized | None:
        """An inference BatchNormalization; None of one in training mode, or whose parameters are not one for each channel."""
        is_training = call.opset >= TRAINING_MODE_SINCE and bool(call["training_mode"])
        if is_training or any(map(call.wants, range(1, 1 + _PARAMETERS))) or call.x.ndim < 2:
            return None
        gamma, beta, mean, variance = call.inputs[1 : 1 + _PARAMETERS]
        if any(np.shape(each) != call.x.shape[1:2] for each in (gamma, beta, mean, variance)):
            return None
        scale = gamma / np.sqrt(variance + call["epsilon"])
        moved = mean * scale
        return Normalized(scale, beta - moved, np.abs(beta) + np.abs(moved), result)

    def behind(self, product: Call) -> Normalized | None:
        """The same for the product in front of it, whose bias its shift takes in; None where that has none for each channel."""
        bias = product.input(_WITH_BIAS - 1)
        if bias is None:
            return self
        if not isinstance(bias, np.ndarray) or bias.shape != self.scale.shape:
            return None
        scaled = self.scale * bias
        return Normalized(self.scale, scaled + self.shift, np.abs(scaled) + self.terms, self.result)

    def is_scaled_by(self, scale: np.ndarray) -> bool:
        """True where ``scale`` is its own but for rounding."""
        return scale.shape == self.scale.shape and _are_near(scale, self.scale, np.abs(self.scale))

    def is_shifted_by(self, shift: np.ndarray) -> bool:
        """True where ``shift`` is its own but for rounding. Where its terms cancel, float32 leaves it open."""
        is_told = is_little(_ROUNDING / 2 * self.terms, self.shift)
        return is_told and shift.shape == self.shift.shape and _are_near(shift, self.shift, self.terms)


@dataclass(frozen=True)
class FoldedProduct:
    """The weight of a product that a BatchNormalization read, its ``shape``, and what that comes to with the product's bias.

    A weight that was read from a file is read again, and not kept: ``weight`` is where it is, in float32.
    """

    weight: np.ndarray | FilePart
    shape: tuple[int, ...]
    normalized: Normalized

    def is_in(self, call: Call) -> bool:
        """True where the weight and the bias of ``call`` are those of both nodes but for rounding."""
        bias = call.input(_WITH_BIAS - 1)
        shift = np.zeros_like(self.normalized.shift) if bias is None else bias
        if not isinstance(shift, np.ndarray) or not self.normalized.is_shifted_by(shift):
            return False
        others = np.asarray(call.inputs[1])
        if others.shape != self.shape:
            return False
        others = others.reshape(len(others), -1)
        kind = others.dtype
        scale, limit = self.normalized.scale.astype(kind)[:, np.newaxis], kind.type(_ROUNDING)
        step = max(1, _BLOCK // max(others.shape[1], 1))
        for start in range(0, len(others), step):
            part = slice(start, start + step)
            scaled = self._rows(part, others.shape) * scale[part]
            distances = others[part] - scaled
            np.abs(distances, out=distances)
            np.abs(scaled, out=scaled)
            scaled *= limit
            if not np.less_equal(distances, scaled).all() or not scaled.max(initial=0.0) < np.inf:
                return False
        return True

    def _rows(self, part: slice, shape: tuple[int, ...]) -> np.ndarray:
        if not isinstance(self.weight, FilePart):
            return self.weight.reshape(shape)[part]
        first, last, _ = part.indices(shape[0])
        length = shape[1] * FLOAT32.itemsize
        rows = FilePart(self.weight.file, self.weight.offset + first * length, (last - first) * length)
        return read_part(rows, "").view(FLOAT32).reshape(-1, shape[1])


def _are_near(values: np.ndarray, others: np.ndarray, terms: np.ndarray) -> bool:
    is_other_zero = (values == 0) & (others == 0) & (np.signbit(values) != np.signbit(others))
    return bool(np.all((np.abs(values - others) <= _ROUNDING * terms) & (terms < np.inf) & ~is_other_zero))
