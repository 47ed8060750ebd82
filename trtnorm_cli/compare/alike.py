"""Hold a candidate to its reference where both have the same products, without computing these.

TensorRT's network of a model that needs no change is that model, node by node, but for normalizations, poolings and the like,
which the parser writes in its own way. Where both multiply the same by the same, any values may stand for the result
(``evaluate/float64/free_values.py``). All else is evaluated in both, and what differs is found at the tensor where it begins.
That is no failure: then the comparison is made with the values that the reference has.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from contextlib import suppress
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.compare.float64_answers import Float64Answers
from trtnorm_cli.compare.float64_runs import Float64Runs, NotWanted
from trtnorm_cli.compare.participants import OnnxParticipant, RunnableReference, coarsest_ulp
from trtnorm_cli.compare.result import CandidateReport, Outputs
from trtnorm_cli.compare.trial_run import Attempt, TrialRun
from trtnorm_cli.evaluate.float64 import FreeValues, Reference, SameProducts, Ties, nearness
from trtnorm_cli.evaluate.metrics import Distance, distance
from trtnorm_cli.evaluate.tolerance import EXACT_ULPS, both, share
from trtnorm_cli.light_dataclass import dataclass

_PRODUCTS = frozenset({"Conv", "MatMul"})
_RESHAPING = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})


def distances_alike(
    reference: RunnableReference, attempt: Attempt, exact: Float64Runs
) -> tuple[Mapping[str, Distance], Reference] | None:
    """The distances of the outputs, and how they were found; None where they, or a tensor inside, tell of a difference.

    The report is told how far tensors inside are apart.
    """
    run, candidate = attempt.run, attempt.candidate
    if not isinstance(reference, OnnxParticipant) or not isinstance(candidate, OnnxParticipant) or not candidate.shares_tensors:
        return None
    names, ulp = same_products(reference.model.graph, candidate.model.graph), coarsest_ulp(reference, candidate)
    if not names:
        return None
    values = FreeValues(names, seed=0)
    products = SameProducts(values)
    own = TrialRun(run.trial, run.known.for_other_inputs(), Ties(nearness(ulp)), free_values=values)
    report = CandidateReport(attempt.report.label, attempt.report.kind)
    other = Attempt(own, attempt.pairing, report, attempt.feeds, same_products=products)
    own.attempts.append(other)
    answers = Float64Answers(reference, exact, lambda _: None, looks_inside=True)
    with suppress(NotWanted), exact.while_wanted(lambda: not products.are_refuted):
        answers.evaluate_together(own)
    own.attempts.clear()  # they refer to it, too, and to all that was evaluated
    own.begun = None
    found = None
    if isinstance(own.exact, Reference) and isinstance(other.found, Reference):
        own.truth = own.exact.outputs
        answers.learn(own, [other])
        found = None if other.suspicious else _near(own.truth, other.exact or {}, both(EXACT_ULPS * ulp))
    if found is None or not isinstance(own.exact, Reference):
        return None
    attempt.report.depth, attempt.report.depth_at = report.depth, report.depth_at
    return found, own.exact


def _near(wanted: Outputs, got: Outputs, limit: Distance) -> Mapping[str, Distance] | None:
    """The distances of the outputs; None where one is further off, not finite, or not there."""
    if wanted.keys() != got.keys() or not all(map(_is_finite, (*wanted.values(), *got.values()))):
        return None
    found = {name: distance(value, got[name]) for name, value in wanted.items()}
    return None if any(share(one, limit) > 1 for one in found.values()) else found


def same_products(one: onnx.GraphProto, other: onnx.GraphProto) -> frozenset[str]:
    """The names of the results that products of the same operator have in both graphs."""
    ours, theirs = _Products.of(one), _Products.of(other)
    return frozenset(name for name, node in ours.nodes.items() if name in theirs.nodes and ours.are_alike(node, theirs, name))


@dataclass(frozen=True)
class _Products:
    """The products of a graph by the names of their results, and the names of stored values, in whatever shape."""

    nodes: Mapping[str, onnx.NodeProto]
    stored: Set[str]

    @staticmethod
    def of(graph: onnx.GraphProto) -> _Products:
        stored = {tensor.name for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" or (node.op_type in _RESHAPING and node.input[0] in stored):
                stored.update(node.output)
        return _Products({node.output[0]: node for node in graph.node if node.op_type in _PRODUCTS}, stored)

    def are_alike(self, node: onnx.NodeProto, others: _Products, name: str) -> bool:
        """True where that of the others may be the same. Whether it is is seen when they are evaluated."""
        other = others.nodes[name]
        is_padded = any(attribute.name == "auto_pad" and attribute.s != b"NOTSET" for attribute in node.attribute)
        are_stored = [one in self.stored for one in node.input] == [one in others.stored for one in other.input]
        return node.op_type == other.op_type and are_stored and not is_padded


def _is_finite(value: Any) -> bool:
    """False for a sequence as well: how far two of these are apart is not measured."""
    return isinstance(value, np.ndarray) and (value.dtype.kind != "f" or bool(np.isfinite(value).all()))
