"""Raise a model of opset 1 to 6 to opset 7, the oldest that ONNX Runtime runs and in which a change can be proved.

Opset 7 brought NumPy's broadcasting and took the training flags off the operators (ONNX operator specification, changelog).
A BatchNormalization in training mode keeps it in the form of opset 7: as one with all its outputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, numpy_helper

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.walk import subgraphs

TARGET = 7
_INITIALIZERS_ARE_NO_INPUTS = 4  # the IR version
_BATCHNORM_OUTPUTS = ("", "mean", "var", "saved_mean", "saved_var")
# Of no meaning since opset 6, or the default of opset 7.
_DROPPED = ("consumed_inputs", "broadcast", "is_test")
_BROADCASTING = frozenset(("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "PRelu", "Sub", "Xor"))
_ONLY_ATTRIBUTES_CHANGED = frozenset((
    "Abs", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Clip", "Concat", "Dropout", "Elu", "Exp", "Floor",
    "Gemm", "HardSigmoid", "InstanceNormalization", "LeakyRelu", "Log", "Max", "Mean", "Min", "Neg", "Pad", "Reciprocal",
    "Relu", "Reshape", "Sigmoid", "Sqrt", "Sum", "Tanh", "Upsample",
))  # fmt: skip


@dataclass
class Raising:
    """A model of opset 7 with the meaning of an older one, or None, and ``why_not``."""

    model: onnx.ModelProto | None
    why_not: str = ""


def raise_old_opset(model: onnx.ModelProto) -> Raising:
    """``model`` in opset 7; ``model`` is not changed, and its external tensors stay references."""
    opset = default_opset(model.opset_import)
    foreign = sorted({node.op_type for node in model.graph.node if not _can_be_raised(node, opset)})
    if foreign:
        return Raising(None, f"{', '.join(foreign)} changed between opset {opset} and {TARGET} in a way that is not handled")
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for entry in result.opset_import:
        if entry.domain in DEFAULT_DOMAINS:
            entry.version = TARGET
    raised = _Raised(result)
    raised.all_nodes()
    return Raising(None, raised.problem) if raised.problem else Raising(result)


def _can_be_raised(node: NodeProto, opset: int) -> bool:
    if any(True for _ in subgraphs(node)) or not onnx.defs.has(node.op_type, node.domain):
        return False
    if node.op_type in _BROADCASTING | _ONLY_ATTRIBUTES_CHANGED:
        return True
    try:
        before, after = (onnx.defs.get_schema(node.op_type, version, node.domain) for version in (opset, TARGET))
    except onnx.defs.SchemaError:
        return False
    return before.since_version == after.since_version


@dataclass
class _Raised:
    """Changes the nodes of ``model`` in place. ``problem`` says why the result cannot be used; it is empty when it can."""

    model: onnx.ModelProto
    problem: str = ""
    _ranks: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        graph = self.model.graph
        self._used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
        self._names = self._used | {name for node in graph.node for name in node.output} | {t.name for t in graph.initializer}

    def all_nodes(self) -> None:
        nodes = list(self.model.graph.node)
        del self.model.graph.node[:]
        for node in nodes:
            for name, change in _CHANGES:
                if node.op_type == name:
                    change(self, node)
            axis = _attribute(node, "axis") if node.op_type in _BROADCASTING else None
            _drop(node, *_DROPPED, *(["axis"] if node.op_type in _BROADCASTING else []))
            if node.op_type in _BROADCASTING:
                self._align(node, axis)
            self.model.graph.node.append(node)

    def add_constant(self, wanted: str, values: list[int] | list[float], dtype: type) -> str:
        """A new initializer; returns its name."""
        name = free_name(wanted, self._names)
        tensor = numpy_helper.from_array(np.array(values, dtype), name)
        self.model.graph.initializer.append(tensor)
        if self.model.ir_version < _INITIALIZERS_ARE_NO_INPUTS:
            self.model.graph.input.append(onnx.helper.make_tensor_value_info(name, tensor.data_type, tensor.dims))
        return name

    def _align(self, node: NodeProto, axis: AttributeProto | None) -> None:
        """Give the second input the axes of length 1 at its end that ``axis`` meant; a slope has one value per channel."""
        if axis is None and node.op_type != "PRelu":
            return
        ranks = [self._rank(name) for name in node.input[:2]]
        if None in ranks:
            self.problem = f"the rank of {node.input[ranks.index(None)]} is not known"
            return
        whole, part = (rank for rank in ranks if rank is not None)
        missing = whole - (1 if axis is None else axis.i % whole) - part
        if missing <= 0 or part == 0:
            return
        aligned = free_name(f"{node.input[1]}_aligned", self._names)
        axes = list(range(part, part + missing))
        self.model.graph.node.append(onnx.helper.make_node("Unsqueeze", [node.input[1]], [aligned], axes=axes))
        node.input[1] = aligned

    def _rank(self, name: str) -> int | None:
        """The rank of a tensor, from what has been raised so far."""
        if name not in self._ranks:
            light = light_copy(self.model)
            inferred = onnx.shape_inference.infer_shapes(light, check_type=False, strict_mode=False)
            stated = {tensor.name: len(tensor.dims) for tensor in self.model.graph.initializer}
            found = {key: len(kind.shape) for key, kind in declared_types(inferred).items() if kind.shape is not None}
            self._ranks = {**found, **stated}
        return self._ranks.get(name)

    def batch_normalization(self, node: NodeProto) -> None:
        is_test = _attribute(node, "is_test")
        outputs = list(node.output)
        del node.output[1:]
        if is_test is not None and is_test.i:
            if self._used.intersection(filter(None, outputs[1:])):
                self.problem = f"{outputs[0]} is normalized in inference mode, but the statistics of its batch are used"
            return
        given = dict(zip(_BATCHNORM_OUTPUTS, outputs, strict=False))
        further = [given.get(name) or free_name(f"{outputs[0]}_{name}", self._names) for name in _BATCHNORM_OUTPUTS[1:]]
        node.output.extend(further)

    def cast(self, node: NodeProto) -> None:
        to = _attribute(node, "to")
        if to is not None and to.type == AttributeProto.STRING:
            _drop(node, "to")
            node.attribute.append(onnx.helper.make_attribute("to", onnx.TensorProto.DataType.Value(to.s.decode())))

    def dropout(self, node: NodeProto) -> None:
        is_test = _attribute(node, "is_test")
        if is_test is None or not is_test.i:
            self.problem = f"the Dropout that makes {node.output[0]} is in training mode"

    def concat(self, node: NodeProto) -> None:
        if _attribute(node, "axis") is None:
            node.attribute.append(onnx.helper.make_attribute("axis", 1))

    def pad(self, node: NodeProto) -> None:
        for attribute in node.attribute:
            if attribute.name == "paddings":
                attribute.name = "pads"

    def reshape(self, node: NodeProto) -> None:
        shape = _attribute(node, "shape")
        if len(node.input) == 1 and shape is not None:
            node.input.append(self.add_constant(f"{node.output[0]}_shape", list(shape.ints), np.int64))
        _drop(node, "shape")

    def upsample(self, node: NodeProto) -> None:
        height, width = _attribute(node, "height_scale"), _attribute(node, "width_scale")
        if height is not None and width is not None:
            node.attribute.append(onnx.helper.make_attribute("scales", [1.0, 1.0, height.f, width.f]))
        _drop(node, "height_scale", "width_scale")
        mode = _attribute(node, "mode")
        if mode is not None and mode.s == b"bilinear":
            mode.s = b"linear"


_CHANGES: tuple[tuple[str, Callable[[_Raised, NodeProto], None]], ...] = (
    ("BatchNormalization", _Raised.batch_normalization),
    ("Cast", _Raised.cast),
    ("Concat", _Raised.concat),
    ("Dropout", _Raised.dropout),
    ("Pad", _Raised.pad),
    ("Reshape", _Raised.reshape),
    ("Upsample", _Raised.upsample),
)


def _attribute(node: NodeProto, name: str) -> AttributeProto | None:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def _drop(node: NodeProto, *names: str) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name not in names]
    del node.attribute[:]
    node.attribute.extend(kept)
