"""Resolve what is ambiguous in a model before it is rewritten: parameters that do not fit, and unwanted training mode.

The rules of this stage make the model valid, or read it as the user asks. What comes out is what every later change, and the
finished network, is compared with, wherever the file itself cannot be run or is to be read otherwise than it is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path

import onnx

from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.clean import Cleaning, clean
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.inference import inferred_or_stated_types
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.quantised_nodes import quantised_nodes
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.surgery import Surgery, open_model
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.audit.diagnosis import OVER_CHANNELS
from trtnorm_cli.rewrite.effect import Effect
from trtnorm_cli.rewrite.proof.check_shapes import check_types, completed
from trtnorm_cli.rewrite.proof.late import late_prover
from trtnorm_cli.rewrite.rule import Change, Rejection, Rule
from trtnorm_cli.rewrite.rules import FLOATS, INFERENCE

# The input shapes at which changes are proved.
ProofShapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class TypedGraph:
    """The graph of a model opened, with the types of its tensors as declared and as pinned (see ``tolerant_types``)."""

    surgery: Surgery
    declared: dict[str, TensorType]
    pinned: dict[str, TensorType]

    def exactly_pinned(self) -> dict[str, TensorType] | None:
        """The pinned types where no normalization was set aside to find them; None where one was."""
        return None if any(map(_is_set_aside, all_nodes(self.surgery.source))) else self.pinned


@dataclass
class ResolvedModel:
    """A model as it is meant, and how that was found. ``cleaning`` is the last cleaning; its counts cover all of them.

    The model refers to values on the ``shelves``. ``opened`` is the cleaned model opened, where that was done and nothing has
    changed since.
    """

    cleaning: Cleaning
    opened: TypedGraph | None = None
    changes: list[Change] = field(default_factory=list)
    failed: list[Change] = field(default_factory=list)
    rejections: list[Rejection] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    shelves: list[Shelf] = field(default_factory=list)

    @property
    def differs_from_the_file(self) -> bool:
        """True when comparing with the file itself says nothing: it is invalid, or the user asked to read it otherwise."""
        return any(change.compared_with_reference for change in self.changes)


@dataclass(frozen=True)
class Resolver:
    """Applies rules that repair or reinterpret one model. External tensors are in ``folder``."""

    folder: Path
    proof_shapes: ProofShapes | None
    settings: RewriteSettings
    runner: OrtRunner

    def resolve(self, cleaning: Cleaning, repairs: tuple[Rule, ...], on_request: tuple[Rule, ...]) -> ResolvedModel:
        """Apply ``repairs``, then those rules ``on_request`` that the profile asks for, and measure what these change."""
        resolved = ResolvedModel(cleaning)
        self._apply(resolved, repairs, thoroughly=bool(quantised_nodes(cleaning.model)))
        if self.settings.training_mode == "eval":
            self._apply_and_measure(resolved, "training_mode: eval", _both(INFERENCE, on_request))
        if self.settings.dynamic_quantization == "float":
            self._apply_and_measure(resolved, "dynamic_quantization: float", _both(FLOATS, on_request))
        return resolved

    def _apply_and_measure(self, resolved: ResolvedModel, asked: str, rules: tuple[Rule, ...]) -> None:
        as_written, failed, rejections = resolved.cleaning.model, list(resolved.failed), list(resolved.rejections)
        # What is behind an operator that ONNX does not know has a type only once that is gone. So the last pass is what counts.
        while self._apply(resolved, rules, thoroughly=True):
            resolved.failed, resolved.rejections = list(failed), list(rejections)
        after = resolved.cleaning.model
        if after is not as_written:
            from trtnorm_cli.rewrite.proof.effect import effect_on_results

            of_integers = not set(rules).isdisjoint(FLOATS)
            shapes, runner = self.proof_shapes, self.runner
            resolved.effects.append(effect_on_results(asked, as_written, after, self.folder, shapes, runner, of_integers))

    def _apply(self, resolved: ResolvedModel, rules: tuple[Rule, ...], thoroughly: bool = False) -> bool:
        """Apply ``rules`` and clean again; returns whether anything changed.

        ``thoroughly`` works out shapes, where they are needed to prove a change, that ONNX's inference leaves open.
        """
        before = resolved.cleaning.model
        opened = resolved.opened or TypedGraph(open_model(before, self.folder), *tolerant_types(before, self.proof_shapes))
        pinned = completed(before, opened.pinned) if thoroughly else opened.pinned
        outcome = driver.apply(opened.surgery, rules, opened.declared, late_prover(self.runner, pinned), self.settings)
        resolved.failed += outcome.failed
        resolved.rejections += outcome.rejections
        resolved.opened = opened if outcome.is_whole and not outcome.changes else None
        if not outcome.changes:
            return False
        resolved.changes += outcome.changes
        resolved.shelves.append(opened.surgery.shelf)
        again = clean(opened.surgery.close(), self.folder, self.runner.run)
        counts = dict(Counter(resolved.cleaning.counts) + Counter(again.counts))
        notes = tuple(dict.fromkeys((*resolved.cleaning.notes, *again.notes)))
        resolved.cleaning = replace(again, counts=counts, notes=notes, shelves=(*resolved.cleaning.shelves, *again.shelves))
        return True


def _both(stage: tuple[Rule, ...], wanted: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in stage if rule in wanted)


def tolerant_types(
    model: onnx.ModelProto, proof_shapes: ProofShapes | None
) -> tuple[dict[str, TensorType], dict[str, TensorType]]:
    """Types of all tensors as declared and at the pinned shapes, also behind normalizations that are not valid.

    Shape inference stops at parameters that do not fit. A normalization's output has the shape of its data whatever they are.
    Where the channel axis of a normalization's data is not declared, it is taken from ``proof_shapes``: constant parameters
    leave it no choice.
    """
    light = light_copy(model)
    data = set()
    for graph in all_graphs(light.graph):
        for node in graph.node:
            if _is_set_aside(node):
                data.add(node.input[0])
                node.op_type = "Identity"
                del node.input[1:], node.output[1:], node.attribute[:]
    declared = declared_types(model)
    inferred = _inferred_where_missing(light)
    pinned = check_types(light, proof_shapes)
    for name, kind in inferred.items():
        said = declared.get(name)
        if said is None or said.shape is None or not said.dtype:
            declared[name] = kind
    for name in data & declared.keys() & pinned.keys() if proof_shapes is not None else ():
        declared[name] = _with_channels(declared[name], pinned[name])
    return declared, pinned


def _is_set_aside(node: onnx.NodeProto) -> bool:
    return node.op_type in OVER_CHANNELS and node.domain in DEFAULT_DOMAINS and bool(node.input and node.output)


def _inferred_where_missing(light: onnx.ModelProto) -> dict[str, TensorType]:
    """The types of all tensors; they are inferred only where ``light`` does not state each of them, as a cleaned model does."""
    stated = declared_types(light)
    made = (name for graph in all_graphs(light.graph) for node in graph.node for name in node.output if name)
    taken = (value.name for graph in all_graphs(light.graph) for value in graph.input)
    if all((kind := stated.get(name)) is not None and kind.dtype and kind.shape is not None for name in (*made, *taken)):
        return stated
    return declared_types(inferred_or_stated_types(light))


def _with_channels(kind: TensorType, pinned: TensorType) -> TensorType:
    shape, sizes = kind.shape, pinned.shape
    if shape is None or sizes is None or len(shape) != len(sizes) or len(shape) < 2 or isinstance(shape[1], int):
        return kind
    return TensorType(kind.dtype, (shape[0], sizes[1], *shape[2:]))
