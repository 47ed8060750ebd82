"""onnxscript's folder, kept off what it gets wrong, and its inference kept off nodes about which it can learn nothing."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx_ir as ir

from trtnorm_cli.onnx_model.fold_kernels import value_of
from trtnorm_cli.onnx_model.ir_walk import every_node, may_hold_graphs
from trtnorm_cli.onnx_model.late_imports import import_folder

if TYPE_CHECKING:
    from onnxscript.optimizer import _constant_folding as library
else:
    library = import_folder()

_NO_LIMIT = 1 << 62
_SHIELD = "trtnorm.shielded"


def run_library(model: ir.Model, may_fold: Callable[[ir.Node], bool], settled: Collection[ir.Value]) -> None:
    """Fold what the library folds, in place; ``settled`` is what ``state_facts`` gave."""
    logger = logging.getLogger("onnxscript.optimizer._constant_folding")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of every node it leaves; the policy's notes say what matters
    try:
        with _shielded(model), _evaluating():
            _Folder(model, may_fold, settled)(model)
    finally:
        logger.setLevel(level)


class _Evaluator(library.ReferenceEvaluator):
    """Evaluates without the reference implementation where that can be."""

    def evaluate(self, domain: str, op: str, version: int, *args: Any, **kwargs: Any) -> Any:
        value = value_of(op, version, args, kwargs) if domain == "" else None
        if value is not None:
            return value
        importlib.import_module("onnx.reference.ops")  # the library believes that it is imported
        with np.errstate(all="ignore"):  # the logarithm of a distance of zero, say: it is what the model asks for
            return super().evaluate(domain, op, version, *args, **kwargs)


class _Folder(library.FoldConstantsPass):
    """The library's pass, which infers the shape of every node before it looks at it: three quarters of its time.

    Where a node's outputs were inferred with the whole graph, and none of its inputs has changed since, that tells no more.
    """

    def __init__(self, model: ir.Model, may_fold: Callable[[ir.Node], bool], settled: Collection[ir.Value]) -> None:
        super().__init__(shape_inference=True, input_size_limit=_NO_LIMIT, output_size_limit=_NO_LIMIT, should_fold=may_fold)
        self._graph = model.graph
        self._settled = settled
        made = (value for node in model.graph for value in node.outputs)
        self._unchanged = {*model.graph.inputs, *model.graph.initializers.values(), *made}

    def visit_node(self, node: ir.Node, root: ir.Graph | ir.Function) -> None:
        if not self._is_idle(node):
            super().visit_node(node, root)

    def _is_idle(self, node: ir.Node) -> bool:
        """True for a node of which the library would learn nothing, by several looks at each of its tensors."""
        if (
            node.graph is not self._graph
            or (node.domain, node.op_type) in library.registry.op_evaluators
            or may_hold_graphs(node)
        ):
            return False
        known = self._state.symbolic_value_map
        inputs = [value for value in node.inputs if value is not None]
        is_computed = any(value.const_value is None for value in inputs)
        return is_computed and not any(value in known for value in inputs) and self._is_settled(node)

    def _do_inference(self, node: ir.Node) -> None:
        is_in_main = node.graph is self._graph
        if is_in_main and self._is_settled(node):
            return
        before = [(value, value.shape, value.type) for value in node.outputs]
        super()._do_inference(node)
        self._unchanged -= {value for value, shape, kind in before if value.shape != shape or value.type != kind}

    def _is_settled(self, node: ir.Node) -> bool:
        if any(value is not None and value not in self._unchanged for value in node.inputs):
            return False
        return all(value in self._settled for value in node.outputs if value.name)


@contextmanager
def _evaluating() -> Iterator[None]:
    """Have the library evaluate with ``_Evaluator``."""
    own, library._reference_evaluator = library._reference_evaluator, _Evaluator()
    try:
        yield
    finally:
        library._reference_evaluator = own


@contextmanager
def _shielded(model: ir.Model) -> Iterator[None]:
    """Keep the library off nodes that it would break, by an operator domain that it does not know."""
    opset = model.opset_imports.get("", 0)
    nodes = [node for node in every_node(model.graph) if node.domain == "" and _library_breaks(node, opset)]
    for node in nodes:
        node.domain = _SHIELD
    try:
        yield
    finally:
        for node in nodes:
            node.domain = ""


def _library_breaks(node: ir.Node, opset: int) -> bool:
    if node.op_type == "Identity":
        return node.outputs[0].is_graph_output()  # it would rename what is behind the output
    if node.op_type == "SplitToSequence":
        return not _split_is_expressible(node, opset)
    if node.op_type == "ConcatFromSequence":
        return opset < 13 and "new_axis" in node.attributes  # its replacement takes axes as an input
    if node.op_type == "CastLike":
        saturate = node.attributes.get("saturate")
        return saturate is not None and saturate.as_int() == 0  # it would drop the attribute
    return False


def _split_is_expressible(node: ir.Node, opset: int) -> bool:
    """True when the library can turn SplitToSequence into a Split that the opset has."""
    split = node.inputs[1] if len(node.inputs) > 1 else None
    if split is None:
        return True  # left alone by the library
    if split.dtype != ir.DataType.INT64:
        return False  # it would pass int32 on to Split, which takes int64 alone
    constant = split.const_value
    if constant is not None:
        return opset >= (18 if len(constant.shape) == 0 else 13)
    return opset >= 13 and split.shape is not None and len(split.shape) == 1 and split.shape.is_static()
