"""Constants that a low type does not hold: too large, flushed to zero, or integers that it has no number for.

They are checked exactly, by rounding them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import onnx

from trtnorm_cli.precision.connections import Connections, is_operator
from trtnorm_cli.precision.low_constants import Constants, in_type
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.operator_kinds import ELEMENTWISE, HEAVY, MOVES
from trtnorm_cli.precision.plan import kept
from trtnorm_cli.precision.ports import TypedNode
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.records.precision import Kept

# A tensor of ordinary numbers loses 0.6 of a half unit in the last place. Four of them are another tensor.
_TENSOR_ERROR = 4.0
# A single number that is off by more is another number.
_NUMBER_ERROR = 5e-2
# Beyond these bounds nothing is anyway: as the largest number of the type they bound as little.
_BOUNDS = {"Clip": (1, 2), "Max": None, "Min": None}
_GUARDED = frozenset({"Add", "Clip", "Max", "Sub", "Sum"})
_ADDED = frozenset({"Add", "Clip", "Max", "Mean", "Min", "Sub", "Sum"})
# A guard serves what divides by it, and guards what is summed up before it.
_TO_THE_DIVISION = frozenset({"Expand", "Pow", "Reshape", "Sqrt", "Unsqueeze"})
_DIVISIONS = frozenset({"Div", "Log", "Pow", "Reciprocal", "Sqrt"})
_BEFORE_GUARDS = frozenset({"Abs", "ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum", "ReduceSumSquare", "Sqrt"})
_PER_CHANNEL = frozenset({"BatchNorm", "GroupNorm", "InstanceNorm", "weight standardisation"})
_WEIGHTED = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_NEXT_TO_NOTHING = 1e-300
_BATCHNORM = ("scale", "bias", "mean", "variance")


class FragileConstants:
    """The nodes of a model whose constants do not survive a low type."""

    def __init__(self, model: onnx.ModelProto, constants: Constants, units: Iterable[Unit], low: LowType) -> None:
        self.graph, self.constants, self.low = Connections(model), constants, low
        units = [unit for unit in units if unit.is_norm]
        self._normalized = {unit.data for unit in units}
        self._normalized_per_channel = {unit.data for unit in units if unit.kind in _PER_CHANNEL}

    def kept(self, nodes: Iterable[TypedNode]) -> Iterator[Kept]:
        """A record for each node that must stay float32, and for those that must with it."""
        for node in nodes:
            if is_operator(node.node, "BatchNormalization"):
                yield from self._batchnorm(node.node)
                continue
            for place in sorted(node.reads):
                name = node.node.input[place]
                if name in self.constants and (found := self._fault(node.node, place, name)) is not None:
                    yield found
                    yield from self._with_guard(node.node, found)
                    break

    def _fault(self, node: onnx.NodeProto, place: int, name: str) -> Kept | None:
        value = self.constants.value(name)
        finite = value if _is_finite(value) else value[np.isfinite(value)]
        if not finite.size:
            return None
        top = float(max(finite.max(), -finite.min()))
        if top > self.low.largest and not _is_bound(node, place):
            return kept(node, "constant", f"its constant {top:.4g} is beyond {self.low.largest:.4g}, the largest number of "
                        f"{self.low.name}", name, top, self.low.largest)  # fmt: skip
        if finite.size == 1:
            return self._number(node, name, float(finite.reshape(-1)[0]))
        return self._positions(node, name, finite, top) or self._tensor(node, name, value)

    def _number(self, node: onnx.NodeProto, name: str, value: float) -> Kept | None:
        rounded = float(in_type(np.array([value], np.float32), self.low).astype(np.float64)[0])
        if value == 0 or abs(value) > self.low.largest or abs(rounded - value) <= _NUMBER_ERROR * abs(value):
            return None
        what = "0" if rounded == 0 else f"{rounded:.4g}"
        reason = f"its constant {value:.4g} would be {what} in {self.low.name}, which ends at {self.low.smallest:.2g}"
        return kept(node, "constant", reason, name, value, self.low.smallest_normal)

    def _positions(self, node: onnx.NodeProto, name: str, finite: np.ndarray, top: float) -> Kept | None:
        if top <= self.low.exact_integers or not (finite == np.rint(finite)).all():
            return None
        if (in_type(finite, self.low).astype(np.float64) == finite).all():
            return None
        reason = f"its integers go to {top:.0f}, and {self.low.name} has all of them only up to {self.low.exact_integers}"
        return kept(node, "constant", reason, name, top, float(self.low.exact_integers))

    def _tensor(self, node: onnx.NodeProto, name: str, value: np.ndarray) -> Kept | None:
        """The fault of a tensor as a whole.

        What is added is rounded by less than the sum is. Small weights of a product make a small result, which matters where a
        normalization brings it to full size. Elsewhere the error budget tells: beside a residual stream of ordinary size it is
        rounded away whatever its weights are.
        """
        if is_operator(node, *_ADDED) or (is_operator(node, *HEAVY) and not self._is_normalized(node)):
            return None
        limit = _TENSOR_ERROR * self.low.half_ulp
        error = 0.0 if self._is_ordinary(value) else _relative(value, in_type(value, self.low))
        if error > limit:
            reason = f"rounding its constant to {self.low.name} costs {error:.2g} of it: most of its numbers are too small"
            return kept(node, "constant", reason, name, error, limit)
        if node.op_type in _WEIGHTED and node.output[0] in self._normalized_per_channel:
            return self._channels(node, name, value)
        return None

    def _is_ordinary(self, value: np.ndarray) -> bool:
        """True where ``value`` is large enough as a whole that what is too small in it costs nothing.

        Each number is off by half a unit in the last place, or by half of the smallest number of the type:

            ‖error‖² ≤ half_ulp² ‖x‖² + n (smallest / 2)²
        """
        if not value.size or not _is_finite(value) or max(value.max(), -value.min()) > self.low.largest:
            return False
        mean_square = float(np.vdot(value, value)) / value.size
        # A quarter of what is allowed covers the rounding of this sum.
        return (
            self.low.half_ulp**2 + (self.low.smallest / 2) ** 2 / max(mean_square, _NEXT_TO_NOTHING)
            <= (_TENSOR_ERROR * self.low.half_ulp) ** 2 / 4
        )

    def _is_normalized(self, node: onnx.NodeProto) -> bool:
        """True where nothing but constants meets the results of ``node`` on their way to a normalization."""
        waiting = list(node.output)
        while waiting:
            name = waiting.pop()
            if name in self._normalized:
                return True
            for reader in self.graph.consumers.get(name, ()):
                others = [other for other in reader.input if other and other != name and other not in self.constants]
                if not others and is_operator(reader, *ELEMENTWISE, *MOVES):
                    waiting.extend(reader.output)
        return False

    def _channels(self, node: onnx.NodeProto, name: str, value: np.ndarray) -> Kept | None:
        """The fault of single output channels, which a normalization of each channel blows up to full size again."""
        axis = _output_axis(node)
        if value.ndim < 2:
            return None
        rows = np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1).astype(np.float64)
        rounded = np.moveaxis(in_type(value, self.low), axis, 0).reshape(rows.shape).astype(np.float64)
        sizes = np.linalg.norm(rows, axis=1)
        errors = np.linalg.norm(rounded - rows, axis=1) / np.where(sizes > 0, sizes, 1)
        worst = int(errors.argmax())
        if errors[worst] <= _NUMBER_ERROR:
            return None
        reason = (
            f"rounding output channel {worst} of its weights to {self.low.name} costs {errors[worst]:.2g} of it, and the "
            "normalization behind brings the channel to full size"
        )
        return kept(node, "constant", reason, name, float(errors[worst]), _NUMBER_ERROR)

    def _batchnorm(self, node: onnx.NodeProto) -> Iterator[Kept]:
        names = list(node.input[1:5])
        if len(names) < 4 or any(name not in self.constants for name in names):
            return
        exact = [self.constants.value(name).astype(np.float64) for name in names]
        rounded = [in_type(self.constants.value(name), self.low).astype(np.float64) for name in names]
        epsilon = next((a.f for a in node.attribute if a.name == "epsilon"), 1e-5)
        with np.errstate(all="ignore"):
            one, other = (v[0] / np.sqrt(v[3] + epsilon) for v in (exact, rounded))
        for role, name, value in zip(_BATCHNORM, names, exact, strict=True):
            top = float(np.abs(value).max()) if value.size else 0.0
            if top > self.low.largest:
                reason = f"its {role} {top:.4g} is beyond {self.low.largest:.4g}, the largest number of {self.low.name}"
                yield kept(node, "constant", reason, name, top, self.low.largest)
                return
        error = _relative(one, other)
        limit = _TENSOR_ERROR * self.low.half_ulp
        if not error <= limit:
            reason = f"rounding scale and variance to {self.low.name} costs {error:.2g} of their quotient"
            yield kept(node, "constant", reason, names[3], error, limit)

    def _with_guard(self, node: onnx.NodeProto, found: Kept) -> Iterator[Kept]:
        """The nodes that a guard against a division by zero is for: what is divided, and what is summed up before."""
        if not is_operator(node, *_GUARDED) or found.value is None or abs(found.value) > self.low.smallest_normal:
            return
        reason = f"{found.reason}; it guards this node"
        waiting = list(node.output)
        while waiting:
            for reader in self.graph.consumers.get(waiting.pop(), ()):
                if is_operator(reader, *_TO_THE_DIVISION):
                    waiting.extend(reader.output)
                if is_operator(reader, *_TO_THE_DIVISION, *_DIVISIONS):
                    yield kept(reader, "constant", reason, found.tensor, found.value, found.limit)
        for before in self.graph.upstream(node.input, _sums_up):
            yield kept(before, "constant", reason, found.tensor, found.value, found.limit)


def _is_finite(value: np.ndarray) -> bool:
    """True where all numbers are finite. The largest and the smallest tell, without an array of truth values."""
    return not value.size or bool(np.isfinite(value.max()) and np.isfinite(value.min()))


def _sums_up(node: onnx.NodeProto) -> bool:
    """True of a reduction in front of a guard, and of the square in front of that."""
    is_square = is_operator(node, "Mul") and len(set(node.input)) == 1
    return is_operator(node, *_BEFORE_GUARDS) or is_square or is_operator(node, "Pow")


def _is_bound(node: onnx.NodeProto, place: int) -> bool:
    if node.op_type not in _BOUNDS:
        return False
    places = _BOUNDS[node.op_type]
    return places is None or place in places


def _output_axis(node: onnx.NodeProto) -> int:
    """The axis of a weight along which the output channels lie."""
    if node.op_type == "Gemm":
        return 0 if any(a.name == "transB" and a.i for a in node.attribute) else 1
    return {"MatMul": -1, "ConvTranspose": 1}.get(node.op_type, 0)


def _relative(value: np.ndarray, rounded: np.ndarray) -> float:
    """The relative L2 distance of the finite elements."""
    finite = np.isfinite(value)
    exact, other = value[finite].astype(np.float64), rounded[finite].astype(np.float64)
    size = float(np.linalg.norm(exact))
    return float(np.linalg.norm(other - exact)) / size if size else 0.0
