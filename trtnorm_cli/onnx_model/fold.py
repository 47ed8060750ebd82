"""Fold constants with onnxscript, under a policy: what may be evaluated, what must not, and what is left to ONNX Runtime.

onnxscript's folder was measured on the ONNX backend tests and on exported models (``docs/cleaning.md``). It evaluates with
the ONNX reference implementation and also simplifies nodes that are not constant. The guards here are for what it gets wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field

import numpy as np
import onnx
import onnx_ir as ir

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.fold_facts import state_facts
from trtnorm_cli.onnx_model.fold_kernels import has_kernel
from trtnorm_cli.onnx_model.fold_sizes import PICKING, products, result_bytes
from trtnorm_cli.onnx_model.fold_small import computed, fold_small
from trtnorm_cli.onnx_model.fold_through import evaluate_through_large
from trtnorm_cli.onnx_model.foldable import can_be_folded, computes_sizes
from trtnorm_cli.onnx_model.ir_constants import ConstantMaker
from trtnorm_cli.onnx_model.ir_walk import every_graph, every_node, holds_graphs
from trtnorm_cli.onnx_model.light_ir import LightSerializer
from trtnorm_cli.onnx_model.normalization_nodes import PARAMETERS
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.static_dimensions import shapes_from_arithmetic, static_dimensions
from trtnorm_cli.onnx_model.tidy import lift_constants, remove_identities

_ROUNDS = 16
# A result up to this size is always kept; up to the second size, when it is no larger than the constants it replaces.
_SMALL_BYTES = 1 << 20
_LARGE_BYTES = 1 << 27
# So much may the model grow by all of them together: many small values are a large one.
_GROWN_BYTES = 1 << 29
# An Einsum of more products takes longer than a second.
_MOST_PRODUCTS = 1 << 30
# In a model with more weights than this only small results are kept: the others would be in memory instead of in the file.
_HUGE_MODEL_BYTES = 1 << 30

_NORMALIZATIONS = frozenset(PARAMETERS)
_RANDOM = frozenset(
    ("Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)
# Folding these would take the quantization of weights out of the model.
_QUANTIZATION = frozenset(("DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear"))
# Quantisers write biases as integers of 32 bits, of which TensorRT's DequantizeLinear knows nothing; no weights are among them.
_BIAS_TYPE = ir.DataType.INT32
_BIAS_INPUT = {"Conv": 2, "ConvTranspose": 2, "Gemm": 2}
# The reference implementation differs from ONNX Runtime: it ignores that these flattened to 2-D before opset 13, …
_FLATTENED_BEFORE_13 = frozenset(("Hardmax", "LogSoftmax", "Softmax"))
# … gives int64 for int32 sums of squares, and other pixels for fractional scales.
_REFERENCE_DIFFERS = frozenset(("ReduceSumSquare", "Resize", "Upsample"))
# TensorRT has no texts, and a regular expression can take forever.
_ON_TEXTS = ("LabelEncoder", "Regex", "String", "TfIdf")
_REFERENCE_IS_SLOW = frozenset(("AveragePool", "Conv", "ConvTranspose", "GridSample", "LpPool", "MaxPool"))
# The kinds of NumPy's own numbers; what ml_dtypes adds is left alone.
_NUMBERS = "biufc"
_TOO_LARGE = "constant, but its value is too large to be stored"
_FOLDED_FROM = "pkg.onnxscript.optimizer.folded_from"


@dataclass
class Folding:
    """How often each thing was done, what was left alone and why, and shapes that only shape arithmetic tells."""

    counts: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    shapes: dict[ir.Value, ir.Shape] = field(default_factory=dict)


# Runs a model with ONNX Runtime, without graph optimization, and gives its outputs by name, in their order.
RunModel = Callable[[onnx.ModelProto, Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


def run_here(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A ``RunModel`` in this process, for models that are trusted: a node can make ONNX Runtime end it."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return dict(zip([value.name for value in model.graph.output], session.run(None, dict(feeds)), strict=True))


def fold_constants(model: ir.Model, shelf: Shelf, run: RunModel = run_here) -> Folding:
    """Fold what is constant in ``model``, in place, until nothing changes any more. ``run`` runs what the library cannot.

    Large values are put on the ``shelf``, which must outlive the model.

    Only dimensions that follow from the inputs are taken for facts: the shapes that the file states for inner tensors, and
    equal names of symbolic dimensions, are not, because either may be wrong.
    """
    folding = Folding()
    policy, serializer, constants = _Policy(model, run), LightSerializer(), ConstantMaker(model.graph, shelf)
    rounds = iter(range(_ROUNDS))
    while (settled := _fold_at_once(model, policy, serializer, constants, folding, rounds)) is not None:
        before = _census(model)
        if can_be_folded(model, policy.library_may_fold):
            from trtnorm_cli.onnx_model.fold_library import run_library

            run_library(model, policy.library_may_fold, settled)
            lift_constants(model, Counter())
        _evaluate_the_rest(model, policy, constants)
        evaluate_through_large(model, policy, constants.replace)
        after = _census(model)
        folding.counts["constants folded"] += len(before - after)
        remove_identities(model, keep_outputs=True)
        told = shapes_from_arithmetic(model)
        if before == after and told == folding.shapes:
            break
        folding.shapes = told
    else:
        folding.notes.append(f"folding was stopped after {_ROUNDS} rounds; there may be more to fold")
    for value in _initializers(model) + [value for node in every_node(model.graph) for value in node.outputs]:
        value.metadata_props.pop(_FOLDED_FROM, None)
    folding.notes += policy.notes()
    return folding


def _fold_at_once(
    model: ir.Model,
    policy: _Policy,
    serializer: LightSerializer,
    constants: ConstantMaker,
    folding: Folding,
    rounds: Iterator[int],
) -> frozenset[ir.Value] | None:
    """Fold what needs neither the library nor ONNX Runtime until nothing changes; returns what ``state_facts`` gives then.

    Returns None where the ``rounds`` are over before.
    """
    remove_identities(model, keep_outputs=True)
    for number in rounds:
        # Data propagation is for what the first round leaves: by then shape arithmetic on static shapes is gone.
        follows_sizes = number > 0
        settled = state_facts(model, folding.shapes, follows_sizes, serializer)
        folded = fold_small(model, policy.library_may_fold, serializer, constants) + static_dimensions(model, constants)
        folding.counts["constants folded"] += folded
        told, before = shapes_from_arithmetic(model), folding.shapes
        folding.shapes = told
        if not folded and told == before and (follows_sizes or not computes_sizes(model)):
            return settled
    return None


def _initializers(model: ir.Model) -> list[ir.Value]:
    return [value for graph in every_graph(model.graph) for value in graph.initializers.values()]


def _census(model: ir.Model) -> set[ir.Node]:
    return {node for node in every_node(model.graph) if node.op_type not in ("Constant", "Identity") or node.domain}


def _is_quantization(node: ir.Node) -> bool:
    return node.op_type in _QUANTIZATION and not (node.op_type == "DequantizeLinear" and _makes_no_weights(node))


def _makes_no_weights(node: ir.Node) -> bool:
    """True of biases and of the parameters of normalizations: everybody computes with these in floating point.

    A scalar is none either, as an exponent: TensorRT refuses a quantized constant without axes.
    """
    data, made = node.inputs[0], node.outputs[0]
    if data is not None and (data.dtype == _BIAS_TYPE or (data.shape is not None and len(data.shape) == 0)):
        return True
    return bool(made.uses()) and not made.is_graph_output() and all(_is_no_weight(*use) for use in made.uses())


def _is_no_weight(reader: ir.Node, index: int) -> bool:
    first = 1 if reader.op_type in _NORMALIZATIONS else _BIAS_INPUT.get(reader.op_type, index + 1)
    return reader.domain in DEFAULT_DOMAINS and index >= first


class _Policy:
    """Decide which nodes may be evaluated. Remembers what was refused and is worth a note."""

    def __init__(self, model: ir.Model, run: RunModel) -> None:
        self._run = run
        self._opset = model.opset_imports.get("", 0)
        self._ir_version = model.ir_version
        self._most_bytes = _SMALL_BYTES if _weights_bytes(model) > _HUGE_MODEL_BYTES else _LARGE_BYTES
        self._notes: dict[str, dict[ir.Node, str]] = {}
        self.too_large: set[ir.Node] = set()
        self._failed: set[ir.Node] = set()
        self._grown: dict[ir.Node, int] = {}
        self._total = 0

    def library_may_fold(self, node: ir.Node) -> bool:
        if node.op_type == "Identity":  # removed without a second copy of the value
            return False
        if node.op_type in _REFERENCE_DIFFERS | _REFERENCE_IS_SLOW or (
            node.op_type in _FLATTENED_BEFORE_13 and self._opset < 13
        ):
            return False
        return self.may_evaluate(node)

    def may_evaluate(self, node: ir.Node) -> bool:
        """True where ``node``, whose inputs are all constants, may be replaced by its value."""
        if not self.may_be_known(node):
            return False
        size = self.size_of(node)
        if size is None:
            return node.op_type in PICKING and sum(t.nbytes for t in _constants(node).values()) <= _SMALL_BYTES
        if not self.is_affordable(node, size):
            self._leave_for_its_size(node)
            return False
        return True

    def may_be_known(self, node: ir.Node) -> bool:
        """True where the value of ``node``, which depends on constants alone, may be evaluated, however large it is."""
        if node.domain != "" or node.op_type in _RANDOM or _is_quantization(node) or node in self._failed:
            return False
        if node.op_type in _NORMALIZATIONS:
            self._note("computed from constants only, and left to the rules", node)
            return False
        if holds_graphs(node) or node.op_type.startswith(_ON_TEXTS):
            return False
        if products(node) > _MOST_PRODUCTS:
            self._note(_TOO_LARGE, node)
            return False
        return True

    def size_of(self, node: ir.Node) -> int | None:
        """The bytes of what ``node`` makes, None where more than sizes decides it."""
        return result_bytes(node, self._opset)

    def _leave_for_its_size(self, node: ir.Node) -> None:
        self.too_large.add(node)
        self._note(_TOO_LARGE, node)

    def is_small(self, node: ir.Node, size: int) -> bool:
        """True where ``size`` bytes of ``node`` are kept whatever they are computed from."""
        return size <= _SMALL_BYTES and self.is_affordable(node, size)

    def is_affordable(self, node: ir.Node, size: int) -> bool:
        """The value is no larger than the constants that only ``node`` reads, or small while all that grew is not much yet."""
        read_here_only = {value.name for value in node.inputs if value is not None and len(value.uses()) == 1}
        freed = sum(tensor.nbytes for name, tensor in _constants(node).items() if name in read_here_only)
        if size <= min(freed, self._most_bytes):
            return True
        total = self._total + max(size - freed, 0) - self._grown.get(node, 0)
        if size > _SMALL_BYTES or total > _GROWN_BYTES:
            return False
        self._grown[node], self._total = max(size - freed, 0), total
        return True

    def evaluation_failed(self, node: ir.Node) -> None:
        self._failed.add(node)
        self._note("constant, but ONNX Runtime cannot evaluate it", node)

    def evaluate(self, node: ir.Node) -> list[np.ndarray] | None:
        """The outputs of ``node``, whose inputs are constants; None where ONNX Runtime cannot run it."""
        found = self.evaluate_in_a_row([node], [value.name for value in node.outputs if value.name], {})
        return None if found is None else list(found.values())

    def evaluate_in_a_row(
        self, nodes: Sequence[ir.Node], outputs: Sequence[str], known: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray] | None:
        """The ``outputs`` of ``nodes``, which are in the order of the graph, by ONNX Runtime without graph optimization.

        Inputs that are no constants are made by earlier ones of the nodes, or are ``known``. None where it cannot run them.
        """
        try:
            made = {value.name for node in nodes for value in node.outputs}
            read = {value.name or "" for node in nodes for value in node.inputs if value is not None}
            feeds = {name: tensor.numpy() for node in nodes for name, tensor in _constants(node).items()}
            feeds |= {name: known[name] for name in known if name in read - made}
            results = self._run(self._alone(nodes, outputs, feeds), feeds)
        except Exception:  # onnxruntime has an exception type for each status, and TypeError for types numpy lacks
            return None
        are_numbers = all(isinstance(one, np.ndarray) and one.dtype.kind in _NUMBERS for one in results.values())
        return results if are_numbers else None

    def _alone(self, nodes: Sequence[ir.Node], outputs: Sequence[str], given: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """A model of ``nodes`` alone, with what is ``given`` as inputs."""
        kinds = {
            name: (tensor.dtype.value, tensor.shape.numpy()) for node in nodes for name, tensor in _constants(node).items()
        }
        kinds |= {
            name: (onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in given.items()
            if name not in kinds
        }
        inputs = [onnx.helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = onnx.helper.make_graph([ir.serde.serialize_node(node) for node in nodes], "constant", inputs, results)
        # The oldest opset with these operators: ONNX Runtime may not know the newest yet.
        since = max(onnx.defs.get_schema(node.op_type, self._opset, "").since_version for node in nodes)
        opset = onnx.helper.make_opsetid("", since)
        return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=min(self._ir_version, 10))

    def _note(self, reason: str, node: ir.Node) -> None:
        self._notes.setdefault(reason, {}).setdefault(node, f"{node.op_type} {node.outputs[0].name}")

    def notes(self) -> list[str]:
        """A line for each reason, with the nodes that are there still."""
        left = {reason: [text for node, text in nodes.items() if node.graph] for reason, nodes in self._notes.items()}
        return [
            ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "") + f": {reason}"
            for reason, names in left.items()
            if names
        ]


def _constants(node: ir.Node) -> dict[str, ir.TensorProtocol]:
    """The constant inputs of ``node`` by name."""
    found = {}
    for value in node.inputs:
        if value is not None and value.name and value.const_value is not None:
            found[value.name] = value.const_value
    return found


def _weights_bytes(model: ir.Model) -> int:
    return sum(value.const_value.nbytes for value in _initializers(model) if value.const_value is not None)


def _evaluate_the_rest(model: ir.Model, policy: _Policy, constants: ConstantMaker) -> None:
    """Evaluate constant nodes that the library leaves: those with several outputs, and those it would get wrong.

    What is behind these may have a kernel here, which is asked before ONNX Runtime.
    """
    opset = model.opset_imports.get("", 0)
    for node in list(every_node(model.graph)):
        if not _is_constant(node) or not policy.may_evaluate(node):
            continue
        own = computed(node, opset) if has_kernel(node.op_type) and policy.library_may_fold(node) else None
        results = policy.evaluate(node) if own is None else [own]
        if results is None:
            policy.evaluation_failed(node)
        else:
            constants.replace(node, results)


def _is_constant(node: ir.Node) -> bool:
    for value in node.inputs:
        if value is not None and (value.const_value is None or value.const_value.dtype == ir.DataType.STRING):
            return False
    return node.op_type not in ("Constant", "Identity") and not holds_graphs(node)
