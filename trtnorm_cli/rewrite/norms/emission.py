"""Normalizations written in the forms that TensorRT compiles best."""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.norms.composition import Composition
from trtnorm_cli.rewrite.norms.known import Shape
from trtnorm_cli.rewrite.norms.matching import along_axis, dtype_of, scale_and_shift
from trtnorm_cli.rewrite.parts.arithmetic import HALF_TYPES, Arithmetic, Operand
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode

_FIRST_LAYER_NORMALIZATION = 17


@dataclass(frozen=True)
class Emission:
    """Writes a normalization of ``data`` anew, in the type of computation that the original had."""

    match: Match
    composition: Composition
    computed_in: int

    @classmethod
    def of(cls, m: Match, composition: Composition, in_float32: bool = False) -> Emission:
        """With ``in_float32``, statistics of half-precision data are computed in float32 even if they were not before."""
        kind = composition.computed_in or composition.dtype
        return cls(m, composition, onnx.TensorProto.FLOAT if in_float32 and kind in HALF_TYPES else kind)

    @property
    def arithmetic(self) -> Arithmetic:
        return Arithmetic(self.match, self.computed_in)

    @property
    def rank(self) -> int:
        return len(self.composition.shape or ())

    @property
    def result_type(self) -> int:
        return dtype_of(self.match, self.composition.output)

    @property
    def scaled_in(self) -> int:
        """The type for scale and shift: the result's, unless they stand before a cast to it, which would round them."""
        return self.result_type if self.composition.dtype == self.result_type else self.computed_in

    def data(self) -> Operand:
        """The data in the type of the computation."""
        return self.arithmetic.raised(self.composition.data, "to_float32")

    def scale_and_shift(self) -> tuple[np.ndarray, np.ndarray]:
        """Both in float64, as they broadcast to the data."""
        both = scale_and_shift(self.match, self.composition)
        assert both is not None, "the conditions before hold"
        return both

    def per_channel(self, channels: int | str | None) -> tuple[np.ndarray, np.ndarray]:
        """Scale and shift as vectors with one value per channel, or with one value where the channels are not known."""
        vectors = [along_axis(values, 1, self.rank) for values in self.scale_and_shift()]
        known = channels if isinstance(channels, int) else max(v.size for v in vectors if v is not None)
        scale, shift = (np.broadcast_to(v, (known,)) for v in vectors if v is not None)
        return scale, shift

    def standardized(self, data: Operand, axes: tuple[int, ...]) -> Operand:
        """(x − μ)/√(σ² + ε) over ``axes``."""
        _, centred, deviation = self._moments(data, axes)
        return self.arithmetic.binary("Div", centred, deviation, "normalized")

    def statistics(self, data: Operand, axes: tuple[int, ...]) -> tuple[Operand, Operand]:
        """μ and √(σ² + ε) over ``axes``."""
        mean, _, deviation = self._moments(data, axes)
        return mean, deviation

    def _moments(self, data: Operand, axes: tuple[int, ...]) -> tuple[Operand, Operand, Operand]:
        a = self.arithmetic
        mean = a.mean(data, axes, role="mean")
        centred = a.binary("Sub", data, mean, "centred")
        variance = a.mean(a.binary("Mul", centred, centred, "squared"), axes, role="variance")
        epsilon = a.operand(np.asarray(self.composition.epsilon), "epsilon")
        return mean, centred, a.sqrt(NewNode("Add", (variance, epsilon), role="variance_and_epsilon"))

    def affine(self, a: Arithmetic, data: Operand, scale: np.ndarray, shift: np.ndarray) -> Operand:
        """``data`` scaled and shifted, as far as that changes anything."""
        if not (scale == 1).all():
            data = NewNode("Mul", (a.operand(data, "data"), a.operand(scale, "scale")), role="scaled")
        if shift.any():
            data = NewNode("Add", (a.operand(data, "data"), a.operand(shift, "bias")), role="shifted")
        return data

    def cast(self, data: Operand, to: int) -> NewNode:
        assert isinstance(data, NewNode), "a normalization is a node"
        return data if to == self.computed_in else NewNode("Cast", (data,), {"to": to}, role="cast_back")

    def over_last_axis(self, data: Operand, scale: np.ndarray, shift: np.ndarray) -> Operand:
        """A LayerNormalization over the last axis, where the opset has it, else the same in elementary operators."""
        a = self.arithmetic
        if self.match.opset < _FIRST_LAYER_NORMALIZATION or self.composition.epsilon <= 0:
            return self.affine(a, self.standardized(data, (self.rank - 1,)), scale, shift)
        tail = (a.operand(shift, "bias"),) if shift.any() else ()
        inputs = (a.operand(data, "data"), a.operand(scale, "scale"), *tail)
        attributes = {"axis": -1, "epsilon": float(self.composition.epsilon)}
        return NewNode("LayerNormalization", inputs, attributes, role="layer_norm")

    def transposed(self, data: Operand, perm: tuple[int, ...], role: str) -> NewNode:
        return NewNode("Transpose", (self.arithmetic.operand(data, role),), {"perm": list(perm)}, role=role)

    def reshaped(self, data: Operand, shape: tuple[int, ...], role: str) -> NewNode:
        value = NewConstant(f"{role}_shape", np.array(shape, np.int64))
        return NewNode("Reshape", (self.arithmetic.operand(data, role), value), role=role)

    def restored(self, data: Operand) -> NewNode:
        """``data`` in the shape of the original data."""
        target = _static_target(self.composition.shape or ())
        if target is not None:
            return self.reshaped(data, target, "restored")
        shape = NewNode("Shape", (self.composition.data,), role="shape")
        return NewNode("Reshape", (self.arithmetic.operand(data, "restored"), shape), role="restored")


def _static_target(shape: Shape) -> tuple[int, ...] | None:
    """The target of a Reshape to ``shape`` of data whose first axis is the batch; None where other sizes are not known."""
    if not all(isinstance(size, int) for size in shape[1:]):
        return None
    return (0, *(size for size in shape[1:] if isinstance(size, int)))
