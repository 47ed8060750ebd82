"""Describe an ONNX model, and the effect of a rewriting on its normalizations."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import onnx

from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.node_names import EVERY_NODE, NodePatterns
from trtnorm_cli.onnx_model.clean import Cleaning
from trtnorm_cli.onnx_model.fixed_inputs import is_of_unknown_rank, with_ranks
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.normalization_nodes import Normalization, normalizations
from trtnorm_cli.onnx_model.plugin_nodes import PluginNode, plugin_nodes
from trtnorm_cli.onnx_model.quantised_nodes import DYNAMIC, quantised_nodes
from trtnorm_cli.onnx_model.shapes import NamedType, declared_types, model_inputs, tensor_type
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.progress import stage
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.norms.record import CompositeNorm, CompositeOutcome, Made, composite_norms, count_by_kind, outcome_of
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rewriting import Rewriting, opened_and_cleaned, plan
from trtnorm_cli.rewrite.rule import Rejection

_LIKELY_RANKS = (4, 3, 5, 2)
LEFT = "left as it is: TensorRT has a layer for it"
# What is said of a node on which a layer of TensorRT is no worse than what stands there.
_ABOUT_KERNELS = ("normalization-in-rows", "normalization-to-scale-shift")
_OVER_ONE_LAYER = ("InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization")
_NEED_A_PLANE = ("InstanceNormalization", "GroupNormalization")


@dataclass(frozen=True)
class NodeOutcome(Normalization):
    """A normalization node, and in ``build`` the rule that takes it, or why none does."""

    build: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The node as JSON values. What JSON does not know is written as text."""
        return {key: _plain(value) if key in ("attributes", "epsilon") else value for key, value in super().to_json().items()}


@dataclass(frozen=True)
class ListedNode(Record):
    """A node that a user asked for by its name."""

    operator: str
    name: str
    outputs: tuple[NamedType, ...]


@dataclass(frozen=True)
class ModelDescription(Record):
    """The description of an ONNX model, with the values that ``trtnorm inspect MODEL.onnx --json`` prints.

    ``nodes`` counts those of the file. The normalizations are those after cleaning: functions inlined, constants folded. Where
    the user asked for nodes by name, ``fitting`` are those of the cleaned model, and the normalizations are those among them.
    """

    file: str
    sha256: str
    producer: str
    ir_version: int
    opset: dict[str, int]
    inputs: tuple[NamedType, ...]
    outputs: tuple[NamedType, ...]
    nodes: dict[str, int]
    cleaning: dict[str, int]
    plugins: tuple[PluginNode, ...]
    normalizations: tuple[NodeOutcome, ...]
    composite_normalizations: tuple[CompositeOutcome, ...]
    warnings: tuple[str, ...]
    fitting: tuple[ListedNode, ...] = field(default=(), metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class Planned:
    """A change that would be made."""

    rule: str
    tensor: str
    removed: tuple[str, ...]


def planned_changes(planned: driver.RewritePlan) -> list[Planned]:
    """The changes that a plan would make."""
    return [Planned(m.rule.name, m.output.name, tuple(describe(node) for node in m.nodes)) for m in planned.matches]


def composite_outcomes(
    norms: Iterable[CompositeNorm], changes: Iterable[Made], rejections: Iterable[Rejection]
) -> tuple[CompositeOutcome, ...]:
    """Each normalization with what became of it, or what would."""
    changes, rejections = tuple(changes), tuple(rejections)
    return tuple(CompositeOutcome(**vars(norm), outcome=outcome_of(norm, changes, rejections)) for norm in norms)


def norm_counts(cleaned: onnx.ModelProto, composites: Iterable[CompositeNorm]) -> dict[str, dict[str, int]]:
    """How many normalizations a model has: ``nodes`` by operator, and those in ``pieces`` by kind.

    A node that is one of the pieces counts as such.
    """
    composites = tuple(composites)
    pieces = Counter(operator for norm in composites for operator in norm.spelled.split())
    nodes = Counter(norm.operator for norm in normalizations(cleaned))
    nodes.subtract({operator: pieces[operator] for operator in nodes})
    return {"nodes": dict((+nodes).most_common()), "pieces": count_by_kind(composites)}


def norms_of(loaded: LoadedModel) -> dict[str, dict[str, int]]:
    """How many normalizations a model has after cleaning, as ``norm_counts`` says."""
    surgery, cleaning = opened_and_cleaned(loaded)
    return norm_counts(cleaning.model, composite_norms(surgery, declared_types(cleaning.model)))


def of_rewriting(rewriting: Rewriting) -> tuple[CompositeOutcome, ...]:
    """The normalizations in pieces of a model and what the rewriting did with each."""
    failed = [Rejection(change.rule, change.node, change.check.reason) for change in rewriting.failed]
    failed += [Rejection(undone.rule, undone.node, f"undone, {undone.reason}") for undone in rewriting.undone]
    return composite_outcomes(rewriting.composites, rewriting.changes, (*failed, *rewriting.rejections))


def why_kept(norm: Normalization, rejections: Iterable[Rejection]) -> list[str]:
    """Why no rule takes a node: that TensorRT has a layer for it, or each rule's reason.

    Rules that repair say of a sound node that there is nothing to repair, which tells a user nothing.
    """
    refused = [r for r in rejections if r.node == norm.label]
    if has_a_layer(norm):
        return [LEFT, *(f"{r.rule}: {r.reason}" for r in refused if r.rule in _ABOUT_KERNELS)]
    return [f"{r.rule}: {r.reason}" for r in refused] or [f"left as it is: no rule is about {norm.operator}"]


def has_a_layer(norm: Normalization) -> bool:
    """True when TensorRT's own layer takes the node in this form, as far as the file tells."""
    if norm.operator not in _OVER_ONE_LAYER or norm.further_outputs or norm.attributes.get("num_groups") == 1:
        return False
    if norm.input_dtype == "?" or any(p.dtype != norm.input_dtype for p in norm.parameters):
        return False
    if norm.operator not in _NEED_A_PLANE:
        return True
    lengths = {p.shape for p in norm.parameters}
    fits = all(shape is not None and len(shape) == 1 for shape in lengths)
    if isinstance(norm.channels, int):
        fits = fits and lengths <= {(norm.channels,)}
    return fits and norm.input_shape is not None and len(norm.input_shape) > 2


def describe_model(path: Path, wanted: NodePatterns = EVERY_NODE) -> ModelDescription:
    """Inputs, outputs, opset, and every normalization with what ``build`` would do with it.

    With ``wanted`` the normalizations are those that fit it, and all nodes that fit are listed. Raises ``UsageProblem`` for a
    pattern that no node fits.
    """
    with stage("load"):
        loaded = load_model(path)
    model = loaded.proto
    with stage("inspect"):
        planned, cleaning, composites, assumed = _planned(loaded)
    wanted.require((name for node in all_nodes(cleaning.model) for name in _names(node)), str(path))
    composites = tuple(norm for norm in composites if wanted.fits(norm.node, norm.output))
    nodes = (norm for norm in normalizations(cleaning.model) if wanted.fits(norm.label, norm.output))
    return ModelDescription(
        file=path.name,
        sha256=loaded.sha256,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        ir_version=model.ir_version,
        opset={entry.domain or "ai.onnx": entry.version for entry in model.opset_import},
        inputs=tuple(NamedType.of(name, kind) for name, kind in model_inputs(model).items()),
        outputs=tuple(_output(value) for value in model.graph.output),
        nodes=dict(Counter(node.op_type for node in all_nodes(model)).most_common()),
        cleaning=dict(sorted(cleaning.counts.items())),
        plugins=tuple(plugin_nodes(model)),
        normalizations=tuple(_outcome(norm, planned) for norm in nodes),
        composite_normalizations=composite_outcomes(composites, planned_changes(planned), planned.rejections),
        warnings=(*loaded.warnings, *cleaning.notes, *assumed, *_quantised_dynamically(cleaning.model)),
        fitting=tuple(_listed(cleaning.model, wanted)) if wanted else (),
    )


def _listed(model: onnx.ModelProto, wanted: NodePatterns) -> Iterator[ListedNode]:
    """The nodes whose name or output fits."""
    types = declared_types(model)
    for node in all_nodes(model):
        if wanted.fits(*_names(node)):
            outputs = tuple(NamedType.of(name, types.get(name)) for name in node.output if name)
            yield ListedNode(node.op_type, _names(node)[0], outputs)


def _names(node: onnx.NodeProto) -> tuple[str, ...]:
    """The name of a node, or operator and first output where it has none, and its outputs."""
    return node.name or f"{node.op_type} -> {node.output[0]}", *node.output


def _planned(loaded: LoadedModel) -> tuple[driver.RewritePlan, Cleaning, tuple[CompositeNorm, ...], tuple[str, ...]]:
    """The rewriting as planned, the cleaned model, its normalizations in pieces, and what was assumed to find these.

    Without a rank the axes of a reduction say little. Where the file gives an input none, the likeliest one stands for it.
    """
    surgery, planned, cleaning = plan(loaded)
    composites = composite_norms(surgery, declared_types(cleaning.model))
    unknown = [value.name for value in loaded.proto.graph.input if is_of_unknown_rank(value)]
    for rank in _LIKELY_RANKS if unknown and not composites else ():
        ranked = replace(loaded, proto=with_ranks(loaded.proto, dict.fromkeys(unknown, rank)))
        try:
            surgery, other, cleaned = plan(ranked)
        except TrtnormError:
            continue
        if found := composite_norms(surgery, declared_types(cleaned.model)):
            names = ", ".join(unknown)
            said = f"normalizations in pieces are those of {rank} dimensions: the file does not say how many {names} has"
            return other, cleaned, found, (said,)
    return planned, cleaning, composites, ()


def _quantised_dynamically(model: onnx.ModelProto) -> Iterator[str]:
    counts = Counter(node.op_type for node in quantised_nodes(model) if node.op_type in DYNAMIC)
    if counts:
        listed = ", ".join(f"{number} {kind}" for kind, number in counts.most_common())
        yield (
            f"it is quantised dynamically ({listed}), which TensorRT does not have: `build` refuses it without "
            "`--dynamic-quantization float` (in the build profile `dynamic_quantization: float`), which computes with floats "
            "and measures how far that moves the results"
        )


def _output(value: onnx.ValueInfoProto) -> NamedType:
    kind = tensor_type(value)
    return NamedType(value.name, "not a tensor", None) if kind is None else NamedType.of(value.name, kind)


def _plain(value: object) -> object:
    """``value`` as JSON can say it: NaN and infinity as words, tensors and graphs by the name of their type."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, int | float | str | None) else type(value).__name__


def _outcome(norm: Normalization, planned: driver.RewritePlan) -> NodeOutcome:
    """The node with the rule that takes it, or why none does."""
    taken = [m.rule.name for m in planned.matches if any(describe(n) == norm.label for n in m.bindings.nodes.values())]
    return NodeOutcome(**vars(norm), build=tuple(taken or why_kept(norm, planned.rejections)))
