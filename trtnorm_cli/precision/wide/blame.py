"""The node at which a model that is computed in float32 loses what it had in float64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64 import Float64Model, ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.precision.wide.check import SAID, Feeds, narrow_feeds, off

_HALF_UNIT = 2.0**-24
# All inner tensors are held at once.
_MOST_BYTES = 512 << 20
_FLOATING = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


@dataclass(frozen=True)
class Loss:
    """A node whose inputs are right to ``before`` and whose result is off by ``after``, each relative to the largest value.

    ``largest_in`` and ``largest_out`` are the largest magnitudes of operands and result, which show a cancellation.
    """

    node: str
    operator: str
    before: float
    after: float
    largest_in: float
    largest_out: float

    def in_words(self) -> str:
        """One line for a message."""
        sizes = f"operands up to {self.largest_in:.2g}, result up to {self.largest_out:.2g}"
        named, off = f"{self.operator} {self.node}", f"{self.after:.1e}"
        if self.before > SAID:
            return f"{named}: its operands are off by {self.before:.1e} already, its result by {off}"
        return f"{named}: operands right to {max(self.before, _HALF_UNIT):.0e}, result off by {off} ({sizes})"


def first_loss(runner: OrtRunner, wide: onnx.ModelProto, folder: Path | None, narrowed: Path, feeds: Feeds) -> Loss | None:
    """The node of the main graph that loses most on the way; None where that cannot be seen.

    ``wide`` is the same graph in float64, whose external tensors are in ``folder``.
    """
    names = _floating_tensors(narrowed)
    exact: dict[str, np.ndarray] = {}

    def remember(name: str, value: object) -> object:
        if name in names and isinstance(value, np.ndarray):
            if sum(one.nbytes for one in exact.values()) + value.nbytes > _MOST_BYTES:
                raise ReferenceUnavailable("the inner tensors are too large to be held at once")
            exact[name] = np.array(value)
        return value

    try:
        evaluate_float64(Float64Model(wide, folder), feeds, watch=remember)
        got = runner.run(narrowed, narrow_feeds(feeds), [name for name in names if name in exact])
    except (ReferenceUnavailable, RunFailed):
        return None
    known = {**{name: value for name, value in feeds.items() if value.dtype.kind == "f"}, **exact}
    errors = {name: off(known[name], value) for name, value in {**narrow_feeds(feeds), **got}.items() if name in known}
    losses = [loss for node in wide.graph.node if (loss := _loss(node, known, errors)) is not None]
    return max(losses, key=lambda loss: loss.after / max(loss.before, _HALF_UNIT), default=None)


def _floating_tensors(narrowed: Path) -> set[str]:
    model = onnx.load(narrowed, load_external_data=False)
    types = declared_types(model)
    made = {name for node in model.graph.node for name in node.output if name}
    return {name for name in made if name in types and types[name].dtype in _FLOATING}


def _loss(node: onnx.NodeProto, values: Mapping[str, np.ndarray], errors: Mapping[str, float]) -> Loss | None:
    """The loss at ``node``, where its result is off by so much that one must say it."""
    after = max((errors[name] for name in node.output if name in errors), default=0.0)
    if not after > SAID:
        return None
    operands = [name for name in node.input if name in errors]
    before = max((errors[name] for name in operands), default=0.0)
    if before >= after:
        return None
    largest_in = max((_largest(values[name]) for name in operands), default=0.0)
    largest_out = max(_largest(values[name]) for name in node.output if name in errors)
    return Loss(node.name or f"-> {node.output[0]}", node.op_type, before, after, largest_in, largest_out)


def _largest(value: np.ndarray) -> float:
    finite = value[np.isfinite(value)]
    return float(np.max(np.abs(finite), initial=0.0))
