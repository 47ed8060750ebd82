"""Loops and conditionals. TensorRT's boundary layers become ONNX's Loop and If with bodies of their own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

import numpy as np
from onnx import GraphProto, TensorProto, ValueInfoProto, helper

from trtnorm_cli.tensorrt.network.context import LayerContext, Scope
from trtnorm_cli.tensorrt.network.graph import GraphWriter
from trtnorm_cli.tensorrt.network.reading import Layer, Tensor
from trtnorm_cli.tensorrt.network.structure import ControlRegion, Structure

#: What TensorRT does to the weights of a recurrent operator in every iteration. Neither can fail, so that it may be done once
#: in front of a loop without any.
_MOVED_OUT = frozenset({"Cast", "Transpose"})


class Translator(Protocol):
    """The writer of the layers of a body, which loops and conditionals call."""

    structure: Structure

    def context(self, layer: Layer, writer: GraphWriter, scope: Scope) -> LayerContext: ...

    def emit(self, layers: Collection[Layer], writer: GraphWriter, scope: Scope) -> None: ...

    def bind(self, layer: Layer, results: list[str], writer: GraphWriter, scope: Scope, mark: int) -> None: ...

    def origin(self, layer: Layer) -> dict[str, str]: ...


def conditional(translator: Translator, region: ControlRegion, writer: GraphWriter, scope: Scope) -> None:
    """``IIfConditional``: an If whose branches hold the layers that only one outcome needs."""
    condition = region.of("CONDITION")[0]
    context = translator.context(condition, writer, scope)
    first = len(writer.nodes)
    chosen = context.op("Reshape", context.value(0), context.array([], np.int64))
    branches = [_branch(translator, region, side, writer, scope) for side in (0, 1)]
    results = context.ops("If", chosen, outputs=len(region.exits), then_branch=branches[0], else_branch=branches[1])
    writer.label_since(first, condition.name, results, translator.origin(condition))
    for layer, result in zip(region.exits, results, strict=True):
        translator.bind(layer, [result], writer, scope, len(writer.nodes))


def _branch(translator: Translator, region: ControlRegion, side: int, writer: GraphWriter, scope: Scope) -> GraphProto:
    body, inner = writer.body(), Scope(scope)
    wanted = [layer.inputs[side] for layer in region.exits]
    translator.emit(region.inside & translator.structure.upstream(wanted), body, inner)
    contexts = [translator.context(layer, body, inner) for layer in region.exits]
    tensors = [context.tensor(side) for context in contexts]
    outputs = [context.op("Identity", context.value(side)) for context in contexts]
    return _graph(body, ("then", "else")[side], [], list(zip(outputs, tensors, strict=True)))


def loop(translator: Translator, region: ControlRegion, writer: GraphWriter, scope: Scope) -> None:
    """``ILoop``: a Loop that carries recurrences from one iteration to the next, and whose iterators read one slice each time.

    The condition of a WHILE limit is a function of the recurrences and is tested before each iteration. It is computed once
    from their initial values and, in the body, from their next ones.
    """
    _Loop(translator, region, writer, scope).write()


class _Loop:
    def __init__(self, translator: Translator, region: ControlRegion, writer: GraphWriter, scope: Scope) -> None:
        self.translator, self.region, self.writer, self.scope = translator, region, writer, scope
        self.limits = {layer.handle.kind.name: layer for layer in region.of("TRIP_LIMIT")}
        self.recurrences = region.of("RECURRENCE")
        self.scans = [layer for layer in region.exits if layer.handle.kind.name != "LAST_VALUE"]
        self.anchor = region.boundary[0]
        self.context = translator.context(self.anchor, writer, scope)

    def write(self) -> None:
        first = len(self.writer.nodes)
        trips = self._trips()
        initial = [self.context.name_of(_connected(layer, 0)) for layer in self.recurrences]
        proceed = self._condition(self.writer, self.scope, initial)
        body, in_front = self._body(trips)
        count = len(self.recurrences) + len(self.scans)
        results = self.context.ops("Loop", trips, proceed, *initial, outputs=count, body=body)
        self.writer.label_since(first, self.anchor.name, results, self.translator.origin(self.anchor))
        self.writer.nodes[first:first] = in_front.nodes
        self.writer.value_info += in_front.value_info
        finals = dict(zip((layer.outputs[0] for layer in self.recurrences), results, strict=False))
        stacked = dict(zip(self.scans, results[len(self.recurrences) :], strict=True))
        for layer in self.region.exits:
            mark = len(self.writer.nodes)
            result = self._stacked(layer, stacked[layer]) if layer in stacked else self._final(layer, finals)
            self.translator.bind(layer, [result], self.writer, self.scope, mark)

    def _trips(self) -> str:
        if "COUNT" not in self.limits:
            return ""
        context = self.translator.context(self.limits["COUNT"], self.writer, self.scope)
        return context.op("Reshape", context.int64(0), context.array([], np.int64))

    def _condition(self, writer: GraphWriter, scope: Scope, states: Sequence[str]) -> str:
        """The WHILE limit's condition for given values of the recurrences, or an empty name without one."""
        if "WHILE" not in self.limits:
            return ""
        limit = self.limits["WHILE"]
        local = Scope(scope)
        for layer, state in zip(self.recurrences, states, strict=True):
            local.bind(layer.outputs[0], state)
        self.translator.emit(self._between(limit), writer, local)
        context = self.translator.context(limit, writer, local)
        return context.op("Reshape", context.value(0), context.array([], np.int64))

    def _between(self, limit: Layer) -> set[Layer]:
        """Layers on a path from a recurrence's output to the limit, without crossing another recurrence."""
        found: set[Layer] = set()
        queue = [tensor.producer for tensor in limit.inputs if tensor is not None]
        while queue:
            layer = queue.pop()
            if layer is None or layer in found or layer in self.region.boundary or layer not in self.region.inside:
                continue
            found.add(layer)
            queue += [tensor.producer for tensor in self.translator.structure.inputs_of(layer)]
        return found

    def _body(self, trips: str) -> tuple[GraphProto, GraphWriter]:
        """The graph of one iteration, and the nodes that do the same in each of them."""
        body, inner = self.writer.body(), Scope(self.scope)
        unique = body.tensor_names.unique
        iteration, keep = unique(f"{self.anchor.name}/iteration"), unique(f"{self.anchor.name}/condition")
        states = [unique(f"{layer.outputs[0].name}") for layer in self.recurrences]
        for layer, state in zip(self.recurrences, states, strict=True):
            inner.bind(layer.outputs[0], state)
        for layer in self.region.of("ITERATOR"):
            self._iterate(layer, body, inner, iteration, trips)
        self.translator.emit(self.region.inside - set(self.region.boundary), body, inner)
        context = self.translator.context(self.anchor, body, inner)
        following = [(_connected(layer, 1), layer.outputs[0]) for layer in self.recurrences]
        updated = [(context.op("Identity", context.name_of(new)), old) for new, old in following]
        gathered = [_connected(layer, 0) for layer in self.scans]
        scanned = [(context.op("Identity", context.name_of(tensor)), tensor) for tensor in gathered]
        proceed = self._condition(body, inner, [name for name, _ in updated]) or context.op("Identity", keep)
        flags = [_info(iteration, TensorProto.INT64, ()), _info(keep, TensorProto.BOOL, ())]
        inputs = [*flags, *(_info_of(name, layer.outputs[0]) for name, layer in zip(states, self.recurrences, strict=True))]
        in_front = body.take_out({info.name for info in inputs}, _MOVED_OUT)
        return _graph(body, "body", inputs, [*updated, *scanned], [_info(proceed, TensorProto.BOOL, ())]), in_front

    def _iterate(self, layer: Layer, body: GraphWriter, inner: Scope, iteration: str, trips: str) -> None:
        first = len(body.nodes)
        context = self.translator.context(layer, body, inner)
        index = iteration
        if layer.handle.reverse:
            if not trips:
                raise layer.refused("a reverse iterator in a loop without a trip count")
            last = context.op("Sub", trips, context.scalar(1, TensorProto.INT64))
            index = context.op("Sub", last, iteration)
        axis = int(layer.handle.axis)
        result = context.move("Gather", [context.value(0), index], context.tensor(0).onnx_type, axis=axis)
        self.translator.bind(layer, [result], body, inner, first)

    def _final(self, layer: Layer, finals: dict[Tensor, str]) -> str:
        carried = _connected(layer, 0)
        if carried not in finals:
            raise layer.refused("the last value of a tensor that is no recurrence of its loop")
        return finals[carried]

    def _stacked(self, layer: Layer, values: str) -> str:
        """One value per iteration along axis 0, brought to TensorRT's order, length and axis.

        TensorRT fixes the length beforehand. Where the loop ends earlier, what follows is unspecified, and zero here.
        """
        context = self.translator.context(layer, self.writer, self.scope)
        onnx_type = context.tensor(0).onnx_type
        if "WHILE" in self.limits and layer.handle.kind.name == "REVERSE":
            raise layer.refused("iterations stacked in reverse in a loop that may end early")
        if layer.handle.kind.name == "REVERSE":
            ends = context.ints(-1), context.ints(np.iinfo(np.int64).min), context.ints(0), context.ints(-1)
            values = context.move("Slice", [values, *ends], onnx_type)
        if "WHILE" in self.limits and context.has(1):
            length = context.op("Reshape", context.int64(1), context.ints(1))
            missing = context.op("Sub", length, context.op("Shape", values, start=0, end=1))
            none = context.ints(*[0] * context.rank(0))
            pads = context.op("Concat", context.ints(0), none, missing, none, axis=0)
            values = context.move("Pad", [values, pads], onnx_type)
        axis, rank = int(layer.handle.axis), context.rank(0) + 1
        if axis == 0:
            return values
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
        return context.move("Transpose", [values], onnx_type, perm=order)


def _connected(layer: Layer, index: int) -> Tensor:
    tensor = layer.inputs[index] if index < len(layer.inputs) else None
    if tensor is None:
        raise layer.refused(f"it has no input {index}")
    return tensor


def _info(name: str, onnx_type: int, shape: Sequence[int | None] | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx_type, None if shape is None else list(shape))


def _info_of(name: str, tensor: Tensor) -> ValueInfoProto:
    shape = None if tensor.shape is None else [d if d >= 0 else None for d in tensor.shape]
    return _info(name, tensor.onnx_type, shape)


def _graph(
    writer: GraphWriter,
    name: str,
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[tuple[str, Tensor]],
    leading: Sequence[ValueInfoProto] = (),
) -> GraphProto:
    infos = [*leading, *(_info_of(output, tensor) for output, tensor in outputs)]
    return helper.make_graph(writer.nodes, name, list(inputs), infos, value_info=writer.value_info)
