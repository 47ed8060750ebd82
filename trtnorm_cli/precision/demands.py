"""Nodes that have to stay float32 because of the values that they compute with.

Five things are looked for: values beyond the type's range, sums that are, variance that is lost in front of a normalization,
numbers that are divided by and vanish, and tensors that lose their digits. The first has a margin. The last three cost accuracy
that can be measured, and count only where it is lost (:func:`confirmed`).

Of sums only those of a softmax and running ones can overflow: TensorRT for RTX adds up means, sums, squares, normalizations
and matrix products in float32 and rounds the result, as the source of its kernels shows (docs/precision_ranges.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.walk import tensors_read
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.float_graph import SAME_VALUES, is_op
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.mask_tensors import mask_tensors
from trtnorm_cli.precision.plan import key_of, name_of
from trtnorm_cli.precision.ranges import Ranges, TensorRange
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.records.precision import Kept

# Values may be so many times as large as those that were seen. Of the user's data another sample differs by less than 2, of
# random data of the same kind by less than 2 as well, but real data are of another kind: see docs/precision.md.
USERS_MARGIN, RANDOM_MARGIN = 2.0, 8.0
# Rounding costs a tensor half a unit in the last place over the root of three. What costs so many half units is another matter.
_LOST_DIGITS = 32.0
_LOST_ELEMENT = 128.0
# Beyond this are the values that stand for infinity, as a mask's.
_STANDS_FOR_INFINITY = 3e38
# Another draw of the same kind has larger extremes by less than this.
NEXT_DRAW = 1.25
# What costs less than this share of the budget is not worth a float32 node.
_WORTH = 0.1


@dataclass(frozen=True)
class Demand:
    """Nodes that ought to stay float32 together, by their keys, and why. ``is_certain`` ones need no measurement."""

    kept: Mapping[str, Kept]
    is_certain: bool

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(self.kept)


def range_kept(
    ranges: Ranges, model: onnx.ModelProto, units: Iterable[Unit], low: LowType, is_users_data: bool
) -> dict[str, Kept]:
    """Everything that the ranges ask for, by node; see :func:`range_demands`."""
    return all_kept(range_demands(ranges, model, units, low, is_users_data))


def all_kept(demands: Iterable[Demand]) -> dict[str, Kept]:
    """The nodes of ``demands``, each with the first reason."""
    found: dict[str, Kept] = {}
    for demand in demands:
        found = {**demand.kept, **found}
    return found


def range_demands(
    ranges: Ranges, model: onnx.ModelProto, units: Iterable[Unit], low: LowType, is_users_data: bool
) -> list[Demand]:
    """The demands of the ranges, the certain ones first. A unit stays float32 as a whole."""
    margin = USERS_MARGIN if is_users_data else RANDOM_MARGIN
    looking = _Looking(ranges, model, tuple(units), low, margin)
    certain = [*looking.too_large(), *looking.large_sums(), *looking.running_sums()]
    return [*certain, *looking.lost_variance(), *looking.vanishing(), *looking.lost_digits()]


def overflow_demands(ranges: Ranges, model: onnx.ModelProto, units: Iterable[Unit], low: LowType, inputs: str) -> list[Demand]:
    """The demands of what overflows, or might with the next draw, with ``inputs`` that are possible but less likely."""
    looking = _Looking(ranges, model, tuple(units), low, NEXT_DRAW, f" with {inputs}")
    return [*looking.too_large(), *looking.large_sums()]


def magnitudes(ranges: Ranges, model: onnx.ModelProto, units: Iterable[Unit], low: LowType, margin: float) -> dict[str, float]:
    """The largest magnitude of each tensor with a margin; of masks and what stands for infinity there is none."""
    return _Looking(ranges, model, tuple(units), low, margin).magnitudes()


def confirmed(
    demands: Iterable[Demand], emulator: Emulator, max_error: float, float32: Collection[str] = ()
) -> dict[str, Kept]:
    """The nodes of ``demands`` for which dropping them would cost accuracy, and those that need no proof.

    The nodes ``float32`` stay that for other reasons. One evaluation shows whether all doubtful demands together matter, and
    only then each is looked at alone.
    """
    found: dict[str, Kept] = {}
    doubtful: list[Demand] = []
    for demand in demands:
        if demand.is_certain:
            found = {**demand.kept, **found}
        else:
            doubtful.append(demand)
    settled = found.keys() | set(float32)
    for demand in _costly([d for d in doubtful if not d.keys <= settled], emulator, max_error * _WORTH, settled):
        found = {**demand.kept, **found}
    return {key: kept for key, kept in found.items() if key not in float32}


def _costly(demands: list[Demand], emulator: Emulator, limit: float, float32: set[str]) -> Iterator[Demand]:
    """Those that cost more than ``limit``, found by halves."""
    if not demands:
        return
    together = frozenset().union(*(demand.keys for demand in demands)) - float32
    if emulator.errors(together).largest <= limit:
        return
    if len(demands) == 1:
        yield demands[0]
        return
    middle = len(demands) // 2
    yield from _costly(demands[:middle], emulator, limit, float32)
    yield from _costly(demands[middle:], emulator, limit, float32)


class _Looking:
    """One look at the ranges of a model."""

    def __init__(
        self,
        ranges: Ranges,
        model: onnx.ModelProto,
        units: tuple[Unit, ...],
        low: LowType,
        margin: float,
        condition: str = "",
    ) -> None:
        self._ranges, self._units, self._low, self._margin, self._condition = ranges, units, low, margin, condition
        self._masks = mask_tensors(model, units)
        self._nodes = {key_of(node): node for node in model.graph.node}
        self._producers = {name: node for node in model.graph.node for name in node.output if name}
        self._unit_of = {key: unit for unit in units for key in unit.keys}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in dict.fromkeys(tensors_read(node)):
                self._readers.setdefault(name, []).append(node)

    def magnitudes(self) -> dict[str, float]:
        """The largest magnitudes, with the margin."""
        return {name: found.largest * self._margin for name, found in self._tensors()}

    def too_large(self) -> Iterator[Demand]:
        """Tensors beyond the range, or so near to it that other data may be."""
        for name, found in self._tensors():
            if found.largest * self._margin > self._low.largest:
                yield self._demand(self._around(name), self._too_large(name, found.largest), name, found.largest, True)

    def _too_large(self, name: str, value: float) -> str:
        limit = f"{self._low.name} ends at {self._low.largest:g}"
        if value > self._low.largest:
            return f"{name} reaches {value:.3g}{self._condition}, and {limit}"
        return f"{name} reaches {value:.3g}: {limit}, and other data may be {self._margin:g} times as large"

    def large_sums(self) -> Iterator[Demand]:
        """Softmaxes whose sum the type cannot hold."""
        for key, value in self._ranges.sums.items():
            if value > self._low.largest:
                limit = f"{self._low.name} ends at {self._low.largest:g}"
                reason = f"{self._nodes[key].op_type} adds up to {value:.3g} in a row{self._condition}, and {limit}"
                yield self._demand([self._nodes[key]], reason, key, value, True)

    def running_sums(self) -> Iterator[Demand]:
        """CumSums, which TensorRT adds up in the type."""
        for key, node in self._nodes.items():
            if is_op(node, "CumSum") and key in self._ranges.tensors and key not in self._masks:
                reason = f"TensorRT adds up a CumSum in {self._low.name}, so that each of its sums is rounded"
                yield self._demand([node], reason, key, self._ranges.tensors[key].largest, True)

    def lost_variance(self) -> Iterator[Demand]:
        """Normalizations of which the data vary less than they are rounded."""
        limit = _LOST_DIGITS * self._low.half_ulp
        for unit in self._units:
            found = self._ranges.variances.get(unit.output)
            if found is None or unit.data in self._masks or not max(found.mean, found.worst / 4) > limit:
                continue
            reason = (
                f"{unit.data} varies so little about its mean that rounding it to {self._low.name} moves the normalized values "
                f"by {found.mean:.1%}, and those of the worst row by {found.worst:.1%}"
            )
            nodes = [*(self._nodes[key] for key in unit.keys if key in self._nodes), *self._makers(unit.data)]
            yield self._demand(nodes, reason, unit.data, found.mean, False, limit)

    def vanishing(self) -> Iterator[Demand]:
        """Divisors, and what is under a root or logarithm, that lose their value."""
        limit = _LOST_ELEMENT * self._low.half_ulp
        for name, found in self._tensors():
            if limit < found.element < float("inf") and found.largest <= self._low.largest:
                reason = (
                    f"an element of {name}, which is divided by or under a root or logarithm, moves by {found.element:.1%} in "
                    f"{self._low.name}"
                )
                yield self._demand(self._around(name), reason, name, found.element, False, limit)

    def lost_digits(self) -> Iterator[Demand]:
        """Tensors so small that the type has few digits for them."""
        limit = _LOST_DIGITS * self._low.half_ulp
        for name, found in self._tensors():
            if limit < found.rounding < float("inf"):
                reason = (
                    f"rounding {name}, whose largest magnitude is {found.largest:.3g}, to {self._low.name} moves it by "
                    f"{found.rounding:.1%}"
                )
                yield self._demand(self._around(name), reason, name, found.rounding, False, limit)

    def _tensors(self) -> Iterator[tuple[str, TensorRange]]:
        for name, found in self._ranges.tensors.items():
            if name not in self._masks and found.is_finite and found.largest < _STANDS_FOR_INFINITY:
                yield name, found

    def _around(self, name: str) -> list[onnx.NodeProto]:
        """The node that makes a tensor, and those that read it."""
        maker = self._producers.get(name)
        return [*([] if maker is None else [maker]), *self._readers.get(name, ())]

    def _makers(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that make a tensor, back to the one that computed its values."""
        found = []
        while (node := self._producers.get(name)) is not None:
            found.append(node)
            if not is_op(node, *SAME_VALUES):
                break
            name = node.input[0]
        return found

    def _demand(
        self, nodes: Iterable[onnx.NodeProto], reason: str, tensor: str, value: float, certain: bool, limit: float | None = None
    ) -> Demand:
        keys: dict[str, None] = {}
        for node in nodes:
            unit = self._unit_of.get(key_of(node))
            for key in [key_of(node)] if unit is None else sorted(unit.keys):
                keys[key] = None
        first = Kept("", "", "", "range", reason, tensor, value, self._low.largest if limit is None else limit)
        kept = {
            key: replace(first, node=name_of(self._nodes[key]), key=key, operator=self._nodes[key].op_type)
            for key in keys
            if key in self._nodes
        }
        return Demand(kept, certain)
