"""Hold a candidate to its reference where both have the same products, without computing these.

TensorRT's network of a model that needs no change is that model, node by node, but for normalizations, poolings and the like,
which the parser writes in its own way. Where both multiply the same by the same, any values may stand for the result
(``evaluate/float64/free_values.py``). All else is evaluated in both, and every tensor that both know has to be the same but for
float64's rounding. Where one is not, that is no failure: then the comparison is made with the values that the reference has.

Any values may be far from those that a model has. So rounding explains nothing here; and what takes one way or another by its
values, or rounds them to steps, is not held to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.compare.float64_answers import Float64Answers
from trtnorm_cli.compare.float64_runs import Float64Runs, NotWanted
from trtnorm_cli.compare.participants import OnnxParticipant, RunnableReference
from trtnorm_cli.compare.result import CandidateReport, Outputs
from trtnorm_cli.compare.trial_run import Attempt, TrialRun
from trtnorm_cli.evaluate.float64 import FreeValues, Reference, SameProducts, Ties
from trtnorm_cli.evaluate.float64.evaluator import DISCONTINUOUS
from trtnorm_cli.evaluate.float64.free_values import is_too_large
from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.profile.prove import Proof, sizes_of
from trtnorm_cli.shapes.evaluate import values_at

_PRODUCTS = frozenset({"Conv", "MatMul"})
_RESHAPING = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})
# Of float64, in sums of another order.
_ROUNDING = 1e-12
# To evaluate so many takes some 15 ns each, in both models.
_MANY_NUMBERS = 100_000_000


def found_alike(reference: RunnableReference, attempt: Attempt, exact: Float64Runs) -> Reference | None:
    """The evaluation in which nothing told the candidate from the reference; None where something did, or it was not made.

    The report is told which tensors inside are the same.
    """
    run, candidate = attempt.run, attempt.candidate
    if not isinstance(reference, OnnxParticipant) or not isinstance(candidate, OnnxParticipant) or not candidate.shares_tensors:
        return None
    names = same_products(reference.model.graph, candidate.model.graph)
    if not names or any(map(_takes_ways, (reference.model, candidate.model))) or _is_one_large(names, candidate.model):
        return None
    values = FreeValues(names, seed=0)
    products = SameProducts(values)
    own = TrialRun(run.trial, run.known.for_other_inputs(), Ties(0.0), free_values=values)
    report = CandidateReport(attempt.report.label, attempt.report.kind)
    other = Attempt(own, attempt.pairing, report, attempt.feeds, same_products=products)
    own.attempts.append(other)
    answers = Float64Answers(reference, exact, lambda _: None, looks_inside=True)
    with suppress(NotWanted), exact.while_wanted(lambda: not products.are_refuted):
        answers.evaluate_together(own)
    own.attempts.clear()  # they refer to it, too, and to all that was evaluated
    own.begun = None
    if not isinstance(own.exact, Reference) or not isinstance(other.found, Reference):
        return None
    own.truth = own.exact.outputs
    answers.learn(own, [other])
    if any(report.depth.values()) or not _are_same(own.truth, other.exact or {}):
        return None
    attempt.report.depth, attempt.report.depth_at = report.depth, report.depth_at
    return own.exact


def has_large_product(model: onnx.ModelProto, proof: Proof) -> bool:
    """True where no values can stand for the result of a product, also at the smallest sizes of each optimization profile.

    ``proof`` is that of these sizes in ``model``. So ``found_alike`` has no need to be asked.
    """
    made = (node.output[0] for node in model.graph.node if node.op_type in _PRODUCTS)
    return _everywhere(made, proof, lambda counts: any(map(is_too_large, ([count] for count in counts))))


def has_many_numbers(model: onnx.ModelProto, proof: Proof) -> bool:
    """True where the tensors of ``model`` hold so many numbers that it takes seconds to evaluate all but its products.

    So it is at the smallest sizes of each optimization profile. ``proof`` is that of these sizes.
    """
    made = (name for node in model.graph.node for name in node.output)
    return _everywhere(made, proof, lambda counts: sum(counts) >= _MANY_NUMBERS)


def _everywhere(names: Iterable[str], proof: Proof, holds: Callable[[Sequence[int]], bool]) -> bool:
    """True where it ``holds`` of the elements that these tensors have, at the smallest sizes of each optimization profile."""
    tensors = proof.tensors or {}
    elements = [size for name in names if name in tensors and (size := tensors[name].size) is not None]
    for profile in proof.fitted.profiles:
        smallest = {name: corners[0] for name, corners in sizes_of(profile, proof.inputs).items()}
        if not holds([count for count in values_at(elements, smallest) if count is not None]):
            return False
    return bool(proof.fitted.profiles)


def _takes_ways(model: onnx.ModelProto) -> bool:
    """True for a model in which values decide what is computed, or on which side of a step they fall."""
    nodes = list(all_nodes(model))
    return len(nodes) > len(model.graph.node) or any(node.op_type in DISCONTINUOUS for node in nodes)


def _is_one_large(names: Set[str], model: onnx.ModelProto) -> bool:
    """True where the model states that the result of one of these products is too large to stand for it."""
    kinds = declared_types(model)
    shapes = (kind.shape for name in names if (kind := kinds.get(name)) is not None and kind.is_static)
    return any(shape is not None and is_too_large(shape) for shape in shapes)


def _are_same(wanted: Outputs, got: Outputs) -> bool:
    if wanted.keys() != got.keys() or not all(map(_is_finite, (*wanted.values(), *got.values()))):
        return False
    return all(distance(value, got[name]).largest <= _ROUNDING for name, value in wanted.items())


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
