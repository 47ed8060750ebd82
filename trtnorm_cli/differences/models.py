"""ONNX models as a whole: what the file says of itself, its inputs and outputs, operators, normalizations and weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import onnx

from trtnorm_cli.differences.facts import INTERFACE, MODEL, NORMS, Fact, counts_text
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.normalization_nodes import is_normalization
from trtnorm_cli.onnx_model.shapes import NamedType, format_shape, model_inputs, tensor_type
from trtnorm_cli.onnx_model.stored import tensor_bytes
from trtnorm_cli.onnx_model.walk import all_nodes, all_tensors
from trtnorm_cli.rewrite.describe import norms_of

# Besides reductions, these compute the means of normalizations in pieces.
_POOLINGS = ("GlobalAveragePool", "AveragePool")


def model_facts(loaded: LoadedModel) -> list[Fact]:
    """The facts about an ONNX file, without those that take time to find out."""
    model = loaded.proto
    nodes = Counter(node.op_type for node in all_nodes(model) if node.op_type != "Constant")
    opsets = {("" if e.domain in DEFAULT_DOMAINS else e.domain): e.version for e in model.opset_import}
    shown = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in sorted(opsets.items()))
    return [
        Fact("model", MODEL, f"{loaded.path.name} ({loaded.sha256[:12]})"),
        Fact("versions", "opset", shown),
        Fact("versions", "IR version", str(model.ir_version)),
        Fact("versions", "producer", f"{model.producer_name} {model.producer_version}".strip() or "not named"),
        Fact("types", INTERFACE, ", ".join(f"{one.name} {one.dtype}" for one in interface(model))),
        Fact("sizes", "sizes", ", ".join(f"{one.name} {shape_text(one)}" for one in interface(model))),
        Fact("operators", "operators", f"{sum(nodes.values())}: {counts_text(nodes)}"),
        Fact("operators", "functions", ", ".join(sorted(f"{f.domain}::{f.name}" for f in model.functions)) or "none"),
        Fact("size", "weights", _weights(model)),
        *_metadata(model),
    ]


def with_other_metadata(facts: list[Fact], others: Iterable[Fact]) -> list[Fact]:
    """``facts`` with a word for the metadata that only the other model has."""
    known = {fact.what for fact in facts}
    missing = [Fact(fact.kind, fact.what, "not there") for fact in others if fact.kind == "metadata" and fact.what not in known]
    return [*facts, *missing]


def interface(model: onnx.ModelProto) -> list[NamedType]:
    """The inputs that are fed, and the outputs."""
    outputs = (NamedType.of(value.name, tensor_type(value)) for value in model.graph.output)
    return [*(NamedType.of(name, kind) for name, kind in model_inputs(model).items()), *outputs]


def shape_text(tensor: NamedType) -> str:
    """The sizes of a tensor, or that they are not known."""
    return "of unknown rank" if tensor.shape is None else format_shape(tensor.shape)


def norms_fact(loaded: LoadedModel) -> Fact:
    """The normalizations of a model, those in pieces included, as they are after cleaning."""
    if not _may_have_norms(loaded.proto):
        return Fact("norms", NORMS, counts_text({}))
    try:
        counts = norms_of(loaded)
    except TrtnormError as error:
        return Fact("norms", NORMS, f"not known: {error.summary}")
    return Fact("norms", NORMS, counts_text({**counts["nodes"], **counts["pieces"]}))


def _may_have_norms(model: onnx.ModelProto) -> bool:
    """False for a model without the operators that make statistics: cleaning it to look for norms would take time."""
    return any(
        is_normalization(node) or node.op_type.startswith("Reduce") or node.op_type in _POOLINGS for node in all_nodes(model)
    )


def _weights(model: onnx.ModelProto) -> str:
    by_type: Counter[str] = Counter()
    total = 0
    for tensor in all_tensors(model):
        by_type[onnx.TensorProto.DataType.Name(tensor.data_type).lower()] += 1
        total += tensor_bytes(tensor)
    return f"{total} bytes in {counts_text(by_type)}" if by_type else "none"


def _metadata(model: onnx.ModelProto) -> Iterator[Fact]:
    yield Fact("metadata", "graph name", model.graph.name or "none")
    yield Fact("metadata", "model version", str(model.model_version))
    for entry in sorted(model.metadata_props, key=lambda entry: entry.key):
        yield Fact("metadata", f"metadata {entry.key}", entry.value)
