"""Evaluates a model in float64, node by node, with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import onnx
from onnx import GraphProto

from trtnorm_cli.evaluate.float64 import onnx_reference
from trtnorm_cli.evaluate.float64.clock import Clock
from trtnorm_cli.evaluate.float64.control_flow import CONTROL_FLOW, Body
from trtnorm_cli.evaluate.float64.cost import multiply_adds, predicted_seconds
from trtnorm_cli.evaluate.float64.errors import BudgetExceeded, ReferenceUnavailable, UnsupportedOperator
from trtnorm_cli.evaluate.float64.float64_model import Float64Model
from trtnorm_cli.evaluate.float64.folded_batchnorms import FoldedBatchNorms
from trtnorm_cli.evaluate.float64.foresight import Foresight
from trtnorm_cli.evaluate.float64.free_values import DESCRIPTION as ANY_VALUES
from trtnorm_cli.evaluate.float64.free_values import FreeValues, SameProducts
from trtnorm_cli.evaluate.float64.function_bodies import body_model
from trtnorm_cli.evaluate.float64.kernels import (
    CONTRIBUTED,
    DESCRIPTIONS,
    IMPLEMENTATIONS,
    KERNELS,
    TAKES_STORED,
    VIEWS,
    microsoft,
)
from trtnorm_cli.evaluate.float64.kernels.call import Call, NotImplementedHere
from trtnorm_cli.evaluate.float64.known import Known
from trtnorm_cli.evaluate.float64.perturbation import Perturbation
from trtnorm_cli.evaluate.float64.planning import Plan, Step, imported_opsets, node_name, plan
from trtnorm_cli.evaluate.float64.raising import Stored, raised_array
from trtnorm_cli.evaluate.float64.running_errors import RunningErrors
from trtnorm_cli.evaluate.float64.shape_arithmetic import KEPT
from trtnorm_cli.evaluate.float64.ties import Ties
from trtnorm_cli.evaluate.float64.unnamed_products import UnnamedProducts
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.stored import tensor_array
from trtnorm_cli.progress import Stage, stage

_SIZES = ("Shape", "Size")
# The attribute with the body of a Loop, Scan or SequenceMap, and how much memory its raised weights may take.
_REPEATED, _RAISED_BYTES = "body", 1 << 28
DISCONTINUOUS = (
    *("ArgMax", "ArgMin", "DynamicQuantizeLinear", "Hardmax", "NonMaxSuppression", "QLinearConv", "QLinearMatMul"),
    *("QuantizeLinear", "Round", "Sign", "TopK", "Unique"),
)


@dataclass(frozen=True)
class Reference:
    """The outputs of a model in float64, and how they were found.

    ``outputs`` are arrays by name, floating-point ones in float64 (a list for a sequence); ``evaluated_with`` names the
    implementation of each operator that was used; ``seconds`` are those of a :class:`Clock`; ``notes`` say what the reader
    should know; ``constants`` are the floating ones that were read, as :class:`Known` tells them apart.
    """

    outputs: dict[str, np.ndarray]
    evaluated_with: dict[str, str]
    seconds: float
    notes: tuple[str, ...]
    constants: frozenset[Hashable] = frozenset()


Watch = Callable[[str, Any], Any]
"""Is shown a result of the main graph with its name, and gives what is to be computed with: the same, or its equal."""


def evaluate_float64(
    model: onnx.ModelProto | Path | Float64Model,
    feeds: Mapping[str, np.ndarray | Stored],
    outputs: Sequence[str] | None = None,
    budget_s: float = 60.0,
    perturbation: Perturbation | None = None,
    watch: Watch | None = None,
    known: Known | None = None,
    ties: Ties | None = None,
    kept: Set[str] | None = None,
) -> Reference:
    """The outputs of ``model`` (or the inner tensors ``outputs``) in exact arithmetic, but for float64's rounding.

    The model is raised with :func:`raise_structure`. Weights are raised one by one when they are needed, and every tensor is
    freed after its last use. Where ``known`` is not given, a feed may be ``Stored``. A ``perturbation`` moves constants and
    results. ``watch`` is shown every result of the main graph by name. ``known`` holds what earlier evaluations found, and
    learns what this one finds unless it is perturbed, and of the tensors of the main graph only those that are ``kept``, where
    these are named. ``ties`` learns where a rounding to steps could have come out otherwise.
    Raises :class:`UnsupportedOperator` for an operator without a verified implementation,
    :class:`BudgetExceeded` when ``budget_s`` seconds do not suffice, :class:`ReferenceUnavailable` for anything else that
    stands in the way: a missing input, shapes that do not fit, no memory.
    """
    evaluation = Evaluation(model, feeds, outputs, budget_s, perturbation, watch, known, ties, kept)
    with stage("float64" if perturbation is None else "noise", evaluation.remaining, "nodes") as told:
        evaluation.go_on(told)
    return evaluation.reference()


def _no_weight(name: str) -> Any:
    raise KeyError(name)


def _weight_of(evaluation: ref[Evaluation], name: str) -> Any:
    """A weight of an evaluation that does not refer to itself by it: what nobody needs any more goes with all its tensors."""
    found = evaluation()
    assert found is not None, "it asks"
    return found.weight(name)


def _own(value: Any) -> Any:
    """A copy: what was evaluated may be a view of another tensor, or of what the caller gave."""
    return [_own(item) for item in value] if isinstance(value, list) else None if value is None else np.array(value)


class _Scope:
    """Tensors by name; what a body does not know, it asks the graph around it."""

    def __init__(self, weight: Callable[[str], Any], outer: _Scope | None = None) -> None:
        self.values: dict[str, Any] = {}
        self._weight, self._outer = weight, outer

    def get(self, name: str) -> Any:
        if name in self.values:
            return self.values[name]
        try:
            self.values[name] = self._weight(name)
        except KeyError:
            if self._outer is None:
                raise
            return self._outer.get(name)
        return self.values[name]


class Evaluation:
    """An evaluation as :func:`evaluate_float64` makes it, which can be left and gone on with between two nodes.

    ``ahead`` are the tensors of the main graph that nodes have still to give. Products that ``known`` remembers may give
    ``free_values``.
    """

    def __init__(
        self,
        model: onnx.ModelProto | Path | Float64Model,
        feeds: Mapping[str, np.ndarray | Stored],
        outputs: Sequence[str] | None = None,
        budget_s: float = 60.0,
        perturbation: Perturbation | None = None,
        watch: Watch | None = None,
        known: Known | None = None,
        ties: Ties | None = None,
        kept: Set[str] | None = None,
        free_values: FreeValues | SameProducts | None = None,
        total_work: Callable[[], float] | None = None,
    ) -> None:
        self._clock, self._budget_s = Clock(), budget_s
        self._foresight = None if total_work is None else Foresight(total_work, budget_s)
        self._kept, self._watch = kept, watch
        self.free_values = free_values
        self._model = model if isinstance(model, Float64Model) else Float64Model(model)
        self._perturbation, self._known, self._ties = perturbation, known, ties
        self._used_with: dict[str, str] = {}
        self._free: set[str] = set()
        self._constants: set[Hashable] = set()
        self._scope, self._results = _Scope(partial(_weight_of, ref(self))), list[Any]()
        for name, value in feeds.items():
            stays = isinstance(value, Stored) and perturbation is None
            self._scope.values[name] = value if stays else self._fed(raised_array(value))
        # Tensors whose elements depend on the elements of an input, not only on its shape.
        self._varying: set[str] = set(feeds)
        self._plan, self._at = self._model.plan(outputs), 0
        self._check_inputs(self._plan, feeds)
        self.ahead = {name for step in self._plan.steps for name in step.node.output if name}
        steps = [] if perturbation is not None or kept is None else self._plan.steps
        takes_folds = known is not None and known.takes_folds and perturbation is None
        nodes = (step.node for step in self._plan.steps)
        self._folded = FoldedBatchNorms(nodes, self._model.place) if takes_folds else None
        self._errors = RunningErrors(self._model.holds) if takes_folds else None
        self._unnamed = UnnamedProducts((step.node for step in steps), self._model.is_stored)

    @property
    def is_done(self) -> bool:
        """True once every node was evaluated."""
        return self.remaining == 0

    @property
    def remaining(self) -> int:
        """The number of nodes that were not evaluated yet."""
        return len(self._plan.steps) - self._at

    @property
    def share_done(self) -> float:
        """The share of the nodes that were evaluated."""
        return self._at / max(len(self._plan.steps), 1)

    @property
    def next_names(self) -> Sequence[str]:
        """The tensors that the next node gives."""
        return () if self.is_done else [name for name in self._plan.steps[self._at].node.output if name]

    def values(self) -> Iterator[Any]:
        """Values that are held for nodes to come, and those that the last one gave."""
        yield from self._scope.values.values()
        yield from self._results

    def pause(self) -> None:
        """Let time pass that does not count, until it goes on."""
        self._clock.pause()

    def go_on(self, told: Stage | None = None, until: Callable[[], bool] | None = None) -> None:
        """Evaluate one node after the other, and end before the next one if ``until`` says so; then time does not count."""
        self._clock.go_on()
        try:
            with np.errstate(all="ignore"):
                while not self.is_done and not (until is not None and until()):
                    step = self._plan.steps[self._at]
                    self._run_step(step, self._scope, self._watch, self._known, self._plan.opsets)
                    self.ahead.difference_update(step.node.output)
                    self._at += 1
                    if told is not None:
                        told.advance()
        finally:
            if until is not None:
                self._clock.pause()

    def reference(self) -> Reference:
        """The outputs, once all is done."""
        values = {name: _own(raised_array(self._scope.get(name))) for name in self._plan.outputs}
        free = {name: "; ".join(filter(None, (self._used_with.get(name), ANY_VALUES))) for name in self._free}
        return Reference(values, {**self._used_with, **free}, self._clock.seconds(), self._notes(), frozenset(self._constants))

    def _notes(self) -> tuple[str, ...]:
        kept = sum(any(name.endswith(KEPT) for name in node.output) for node in self._model.structure.graph.node)
        jumps = sorted(set(self._used_with) & set(DISCONTINUOUS))
        said = []
        if kept:
            said.append(f"{kept} nodes that decide sizes were evaluated in their own type")
        if jumps:
            said.append(f"{', '.join(jumps)}: next to a tie, rounding alone decides the result")
        return tuple(said)

    def _check_inputs(self, todo: Plan, feeds: Mapping[str, Any]) -> None:
        inputs = {value.name for value in todo.graph.input}
        read = {name for step in todo.steps for name in step.reads} | set(todo.outputs)
        missing = sorted(name for name in read & inputs - set(feeds) if not self._model.is_stored(name))
        if missing:
            raise ReferenceUnavailable(f"no value is given for the input '{missing[0]}'")
        unknown = sorted(set(feeds) - inputs)
        if unknown:
            raise ReferenceUnavailable(f"the model has no input '{unknown[0]}'")
        lost = sorted(name for name in todo.outer if not self._model.holds(name))
        if lost:
            raise ReferenceUnavailable(f"the graph has no tensor '{lost[0]}'")

    def weight(self, name: str) -> Any:
        """A weight of the main graph, as what reads it takes it. Raises ``KeyError`` where it has none of this name."""
        value = self._read_weight(name)
        computed = None if self._errors is None or self._known is None else self._known.computed(name, value)
        return value if computed is None else computed

    def _read_weight(self, name: str) -> Any:
        known, place = self._known, self._model.place(name)
        if known is None or place is None:
            value, is_raised = self._model.weight(name)
            return self._stored(value) if is_raised else value
        found = known.read(place)
        if found is None:
            found = known.constant(self._model.lower_weight(name))
            known.remember(place, found)
        found = found.reshape(self._model.dims(name))
        return self._shared(Stored(found) if found.dtype == np.float32 else found)

    def _fed(self, value: Any) -> Any:
        moved = value if self._perturbation is None else self._perturbation.input(value)
        return moved if self._known is None or moved is not value else self._known.fed(value)

    def _stored(self, value: Any) -> Any:
        return self._shared(value if self._known is None else self._known.constant(value))

    def _shared(self, shared: Any) -> Any:
        if self._known is not None and self._perturbation is None and isinstance(shared, np.ndarray | Stored):
            self._constants.add(self._known.identity(shared))
        return shared if self._perturbation is None else self._perturbation.constant(shared)

    def _computed(self, step: Step, inputs: list[Any], name: str, value: Any) -> Any:
        """A result, moved if results are; what a node that decides sizes gives is exact."""
        if name.endswith(KEPT):
            return value
        if step.node.op_type == "Constant":
            return self._stored(value)
        if self._perturbation is None:
            return value
        fixed = self._varying.isdisjoint(step.reads)
        return self._perturbation.result(step.node, step.attributes, inputs, value, fixed)

    def _run_plan(self, todo: Plan, scope: _Scope) -> None:
        for step in todo.steps:
            self._run_step(step, scope, None, None, todo.opsets)

    def _run_step(self, step: Step, scope: _Scope, watch: Watch | None, known: Known | None, opsets: Mapping[str, int]) -> None:
        self._check_time(step, 0.0)
        inputs = [self._read(scope, step, index) for index in range(len(step.node.input))]
        self._results = results = list(self._evaluate(step, inputs, scope, opsets, known))
        is_view = step.node.domain in DEFAULT_DOMAINS and step.node.op_type in VIEWS
        for name, value in zip(step.node.output, results):  # noqa: B905 - trailing outputs may be left out
            if name:
                if is_view and isinstance(scope.get(step.node.input[0]), Stored):
                    scope.values[name] = Stored(value)
                    continue
                array = value if value is None or isinstance(value, list) else np.asarray(value)
                array = self._computed(step, inputs, name, array)
                if self._ties is not None:
                    self._ties.learn(step.node, step.attributes, inputs, name, array)
                scope.values[name] = array if watch is None else watch(name, array)
        if step.node.op_type not in _SIZES and not self._varying.isdisjoint(step.reads):
            self._varying.update(step.node.output)
        for name in step.done:
            scope.values.pop(name, None)
            if self._errors is not None and scope is self._scope:
                self._errors.forget(name)
        self._results = []

    def _read(self, scope: _Scope, step: Step, index: int) -> Any:
        name = step.node.input[index]
        try:
            value = scope.get(name) if name else None
        except KeyError:
            raise ReferenceUnavailable(f"the graph has no tensor '{name}'", where=node_name(step.node)) from None
        if not isinstance(value, Stored):
            return value
        if step.node.domain in DEFAULT_DOMAINS and index in TAKES_STORED.get(step.node.op_type, ()):
            return value.array
        return self._in_float64(value)

    def _in_float64(self, value: Any) -> Any:
        if not isinstance(value, Stored):
            return value
        return raised_array(value) if self._known is None else self._known.raised(value)

    def _evaluate(
        self, step: Step, inputs: list[Any], scope: _Scope, opsets: Mapping[str, int], known: Known | None
    ) -> Sequence[Any]:
        try:
            return self._dispatch(step, inputs, scope, opsets) if known is None else self._found(step, inputs, scope, known)
        except ReferenceUnavailable:
            raise
        except NotImplementedHere as reason:
            raise UnsupportedOperator(f"no float64 reference: {reason}", where=node_name(step.node)) from reason
        except MemoryError as error:
            raise ReferenceUnavailable("not enough memory", where=node_name(step.node)) from error
        except Exception as error:
            words = f"cannot be evaluated: {type(error).__name__}: {error}"
            raise ReferenceUnavailable(words, where=node_name(step.node)) from error

    def _found(self, step: Step, inputs: list[Any], scope: _Scope, known: Known) -> Sequence[Any]:
        """The results of a node of the main graph: those of an equal node, or evaluated now."""
        node, opsets = step.node, self._model.opsets
        if node.domain not in DEFAULT_DOMAINS or node.op_type not in KERNELS:
            return self._dispatch(step, inputs, scope, opsets)
        call = Call(node.op_type, opsets.get("", 1), tuple(inputs), step.attributes, tuple(node.output))
        results = self._equal_or_evaluated(step, call, scope, known)
        if self._errors is not None and (node.op_type in _SIZES or self._varying.isdisjoint(step.reads)):
            for name, value, error in zip(node.output, results, self._errors.of_results(node, call, results), strict=False):
                if error is not None and self._kept is not None and name not in self._kept:
                    known.learn_computed(name, value, error)
        return results

    def _equal_or_evaluated(self, step: Step, call: Call, scope: _Scope, known: Known) -> Sequence[Any]:
        node, inputs = step.node, list(call.inputs)
        found = known.results(call)
        if found is None and self._folded is not None and (folded := self._folded.result(call, known)) is not None:
            found = (folded,)
            known.learns(call, found)
        if found is not None:
            self._used(("", node.op_type), DESCRIPTIONS[node.op_type])
            return found
        values = None if self.free_values is None else self.free_values.of(call, partial(known.learns, call))
        if values is not None:
            self._free.add(node.op_type)
            return [values]
        learns = self._perturbation is None and (self._kept is None or not self._kept.isdisjoint(node.output))
        results = known.keep(call, self._dispatch(step, inputs, scope, self._model.opsets), learns)
        if self._folded is not None:
            self._folded.learn(node, call, results, known)
        if node.op_type == "Add":
            self._unnamed.learn(node, inputs, results[0] if learns else None, known)
        elif not learns:
            self._unnamed.hold(node, call)
        return results

    def _dispatch(self, step: Step, inputs: list[Any], scope: _Scope, opsets: Mapping[str, int]) -> Sequence[Any]:
        node = step.node
        domain = "" if node.domain in DEFAULT_DOMAINS else node.domain
        operator = (domain, node.op_type)
        if not domain and node.op_type in CONTROL_FLOW:
            self._used(operator, "trtnorm: evaluates the body")
            bodies = partial(self._body, step, scope, opsets)
            return CONTROL_FLOW[node.op_type](bodies, inputs, dict(step.attributes))
        if not domain and node.op_type in KERNELS:
            call = Call(node.op_type, opsets.get(domain, 1), tuple(inputs), step.attributes, tuple(node.output))
            self._check_time(step, predicted_seconds(call))
            self._used(operator, DESCRIPTIONS[node.op_type])
            results = KERNELS[node.op_type](call)
            if self._foresight is not None:
                self._foresight.work += multiply_adds(call)
            is_copied = node.op_type == "Gather" and not node.output[0].endswith(KEPT)
            return [raised_array(value) for value in results] if is_copied else results
        if operator in CONTRIBUTED:
            call = Call(node.op_type, opsets.get(domain, 1), tuple(inputs), step.attributes, tuple(node.output))
            self._used(operator, IMPLEMENTATIONS[microsoft])
            return CONTRIBUTED[operator](call)
        if operator in onnx_reference.VERIFIED:
            self._used(operator, onnx_reference.DESCRIPTION)
            return onnx_reference.evaluate(node, inputs, opsets, step.cache)
        return self._function_body(step, inputs, scope, domain, opsets)

    def _used(self, operator: tuple[str, str], implementation: str) -> None:
        self._used_with["::".join(filter(None, operator))] = implementation

    def _function_body(
        self, step: Step, inputs: list[Any], scope: _Scope, domain: str, opsets: Mapping[str, int]
    ) -> Sequence[Any]:
        model = body_model(step.node, inputs, domain, opsets.get(domain, 1))
        if model is None:
            raise UnsupportedOperator("no verified float64 implementation", where=node_name(step.node))
        self._used((domain, step.node.op_type), "trtnorm: the specification's function body")
        wanted = [name for name in step.node.output if name]
        inner = _Scope(_no_weight, scope)
        inner.values = {name: value for name, value in zip(step.node.input, inputs, strict=True) if name}
        self._run_plan(plan(model.graph, wanted, imported_opsets(model)), inner)
        return [self._in_float64(inner.get(name)) if name else None for name in step.node.output]

    def _body(self, step: Step, outer: _Scope, opsets: Mapping[str, int], attribute: str) -> Body:
        """The body's plan and weights are made once for all iterations."""
        if attribute not in step.cache:
            graph: GraphProto = step.attributes[attribute]
            todo = plan(graph, [value.name for value in graph.output], opsets)
            folder = self._model.folder
            weights = {t.name: self._stored(raised_array(tensor_array(t, folder))) for t in graph.initializer}
            step.cache[attribute] = todo, weights
        todo, weights = step.cache[attribute]
        known = {**self._raised_for_a_loop(todo, outer), **weights} if attribute == _REPEATED else weights

        def evaluate(inputs: list[Any]) -> list[Any]:
            self._check_time(step, 0.0)
            scope = _Scope(known.__getitem__, outer)
            scope.values = {value.name: given for value, given in zip(todo.graph.input, inputs, strict=True)}
            self._varying.update(scope.values)
            self._run_plan(todo, scope)
            return [self._in_float64(scope.get(name)) for name in todo.outputs]

        return evaluate

    def _raised_for_a_loop(self, todo: Plan, outer: _Scope) -> dict[str, Any]:
        """The weights around a body that every iteration would raise anew, as far as there is room for them."""
        found, room = {}, _RAISED_BYTES
        for name in todo.outer:
            value = outer.get(name)
            size = value.array.size * np.dtype(np.float64).itemsize if isinstance(value, Stored) else 0
            if 0 < size <= room:
                found[name], room = raised_array(value), room - size
        return found

    def _check_time(self, step: Step, next_seconds: float) -> None:
        foreseen = None if self._foresight is None else self._foresight.too_long(self._clock)
        if foreseen is not None:
            raise BudgetExceeded(
                f"the float64 reference would take longer than {self._budget_s:.3g} s: about {foreseen:.3g} s",
                where=node_name(step.node),
                hint="use smaller shapes, or allow more time",
            )
        if self._clock.are_over(self._budget_s - next_seconds):
            passed = self._clock.seconds()
            raise BudgetExceeded(
                f"the float64 reference would take longer than {self._budget_s:.3g} s: "
                f"{passed:.3g} s have passed and the next node needs about {next_seconds:.3g} s",
                where=node_name(step.node),
                hint="use smaller shapes, or allow more time",
            )
