"""Tidy a graph, the part of cleaning besides folding: inline functions, drop identities and dead nodes, lift constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import onnx
import onnx_ir as ir
import onnx_ir.passes.common as passes

from trtnorm_cli.errors import ModelError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.ir_walk import every_graph, every_node, graphs_of

# From opset 7 to 11 Dropout had no training input: it always was the identity.
_DROPOUT_IS_IDENTITY = range(7, 12)


@dataclass(frozen=True)
class _Pin:
    """A graph output, and the value that stood there before an Identity was put between the two."""

    index: int
    name: str
    behind: ir.Value


@contextmanager
def pinned_outputs(model: ir.Model) -> Iterator[int]:
    """Put an Identity before every output, so that work on the inner tensors cannot lose or merge an output's name.

    Yields how many were put in. On leaving, an output is produced directly again wherever its name allows; the names of
    inputs are as they were.
    """
    inputs = [(value, value.name) for value in model.graph.inputs]
    before = count_identities(model)
    pins = _pin(model.graph)
    yield count_identities(model) - before
    for pin in pins:
        # First the outputs that were produced directly: they keep their producer, and other names of them an Identity.
        identity = model.graph.outputs[pin.index].producer()
        if identity is not None and identity.op_type == "Identity" and identity.inputs[0] is pin.behind:
            _bypass(identity)
    remove_identities(model)
    _unpin(model.graph, pins)
    for value, name in inputs:
        value.name = name
    _fix_names(model)


def _fix_names(model: ir.Model) -> None:
    """Make names unique. Outputs that are left out, which are empty names, stay so: a name can give a node another mode."""
    left_out = [value for node in every_node(model.graph) for value in node.outputs if value.name == "" and _is_unused(value)]
    passes.NameFixPass()(model)
    for value in left_out:
        value.name = ""


def _pin(graph: ir.Graph) -> list[_Pin]:
    pins: list[_Pin] = []
    for index, behind in enumerate(graph.outputs):
        name = behind.name or f"output_{index}"
        if _identity_of(behind) is None or any(pin.behind is behind for pin in pins):
            pin = ir.Value(name=f"trtnorm_output_{index}_{name}", type=behind.type, shape=behind.shape)
            graph.append(ir.Node("", "Identity", [behind], outputs=[pin]))
            graph.outputs[index] = pin
        pins.append(_Pin(index, name, behind))
    return pins


def _unpin(graph: ir.Graph, pins: list[_Pin]) -> None:
    claimed: dict[ir.Value, str] = {}
    for pin in pins:
        before = graph.outputs[pin.index]
        value = graph.outputs[pin.index] = _settled(graph, pin, claimed)
        claimed[value] = pin.name
        identity = before.producer()
        if before is not value and identity is not None and not before.uses() and not before.is_graph_output():
            graph.remove(identity, safe=True)
    for value, name in claimed.items():
        _give_name(graph, value, name)


def _settled(graph: ir.Graph, pin: _Pin, claimed: dict[ir.Value, str]) -> ir.Value:
    """The value that is to be the output of ``pin``; it may take the output's name."""
    value = graph.outputs[pin.index]
    source = _identity_of(value)
    if source is not None and source is pin.behind and source.producer() is None:
        return source  # an input or an initializer that the file lists as an output
    if source is not None and claimed.get(source) == pin.name:
        return source  # an output that the file lists twice
    if value is pin.behind or (value.producer() is not None and claimed.get(value, pin.name) == pin.name):
        return value
    identity = ir.Node("", "Identity", [value], num_outputs=1)
    identity.outputs[0].type, identity.outputs[0].shape = value.type, value.shape
    graph.append(identity)
    return identity.outputs[0]


def _identity_of(value: ir.Value) -> ir.Value | None:
    node = value.producer()
    return node.inputs[0] if node is not None and node.op_type == "Identity" and node.domain == "" else None


def _give_name(graph: ir.Graph, value: ir.Value, name: str) -> None:
    """Name ``value``. An initializer that has the name gives it up; other holders are renamed when all is done."""
    holder = graph.initializers.get(name)
    if holder is not None and holder is not value:
        holder.name = _free_name(graph, name)
    value.name = name


def _free_name(graph: ir.Graph, name: str) -> str:
    number = 1
    while f"{name}_{number}" in graph.initializers:
        number += 1
    return f"{name}_{number}"


def inline_functions(model: ir.Model, counts: Counter[str], notes: list[str]) -> None:
    """Inline all calls of model-local functions, at any depth. Raises ``ModelError`` for what cannot be inlined.

    A function that has the domain and name of an ONNX operator is left to the operator, as ONNX Runtime and TensorRT do.
    """
    shadowing = [key for key, function in model.functions.items() if onnx.defs.has(function.name, function.domain)]
    for key in shadowing:
        notes.append(f"the function {key[1]} was dropped: its name is that of an ONNX operator, which is used instead")
        del model.functions[key]
    for function in model.functions.values():
        _adopt_opset(model, function)
    calls = _count_calls(model, model.graph, {})
    try:
        passes.InlinePass()(model)
    except Exception as error:  # the pass raises ValueError and its own errors, wrapped or not
        raise ModelError(
            f"the model's functions cannot be inlined: {error}",
            None,
            "export the model without functions, or inline them with onnx.inliner",
        ) from error
    model.functions.clear()
    counts["function calls inlined"] += calls
    passes.RemoveUnusedOpsetsPass()(model)


def _count_calls(model: ir.Model, caller: ir.Graph | ir.Function, counted: dict[ir.Function, int | None]) -> int:
    """Calls that inlining ``caller`` comes to, calls inside called functions included. Raises ``ModelError`` for recursion."""
    found = 0
    for node in ir.traversal.RecursiveGraphIterator(caller):
        function = model.functions.get(node.op_identifier())
        if function is None:
            continue
        if function not in counted:
            counted[function] = None
            counted[function] = _count_calls(model, function, counted)
        inside = counted[function]
        if inside is None:
            raise ModelError(
                f"the function {function.name} calls itself",
                f"function {function.name}",
                "export the model without functions; TensorRT crashes on recursion",
            )
        found += 1 + inside
    return found


def _adopt_opset(model: ir.Model, function: ir.Function) -> None:
    """Let a function that was written for another opset use the model's, when its operators are the same in both."""
    wanted = model.opset_imports.get("")
    own = function.opset_imports.get("")
    if own is None or wanted is None or own == wanted:
        return
    for node in ir.traversal.RecursiveGraphIterator(function):
        if node.domain == "" and _since(node.op_type, own) != _since(node.op_type, wanted):
            raise ModelError(
                f"the function {function.name} is written for opset {own} and the model for opset {wanted}, "
                f"and {node.op_type} differs between the two",
                f"function {function.name}, node {node.name or node.op_type}",
                "convert the model with onnx.version_converter, or export it without functions",
            )
    function.opset_imports[""] = wanted


def _since(operator: str, opset: int) -> int | None:
    try:
        return int(onnx.defs.get_schema(operator, opset, "").since_version)
    except onnx.defs.SchemaError:
        return None


def count_identities(model: ir.Model) -> int:
    """How many nodes pass their input on unchanged."""
    opset = model.opset_imports.get("", 0)
    return sum(_is_identity(node, opset) for node in every_node(model.graph))


def remove_identities(model: ir.Model, keep_outputs: bool = False) -> None:
    """Connect the consumers of every Identity, and of every Dropout that is one, with its input, and remove it.

    An Identity that produces a graph output goes only when its input can take over the name, and never when
    ``keep_outputs`` is set.
    """
    # onnx_ir's own pass lets one tensor take over the names of two outputs, and a body's output be a tensor outside of it.
    opset = model.opset_imports.get("", 0)
    for node in list(every_node(model.graph)):
        if _is_identity(node, opset) and not (keep_outputs and node.outputs[0].is_graph_output()):
            _bypass(node)


def _is_identity(node: ir.Node, opset: int) -> bool:
    if node.domain != "" or not node.inputs or node.inputs[0] is None:
        return False
    if node.op_type == "Dropout":
        return opset in _DROPOUT_IS_IDENTITY and all(_is_unused(mask) for mask in node.outputs[1:])
    return node.op_type == "Identity"


def _is_unused(value: ir.Value) -> bool:
    return not value.uses() and not value.is_graph_output()


def _bypass(node: ir.Node) -> None:
    source, result, graph = node.inputs[0], node.outputs[0], node.graph
    assert source is not None
    assert graph is not None
    producer = source.producer()
    if result.is_graph_output() and (producer is None or producer.graph is not graph or source.is_graph_output()):
        return
    result.replace_all_uses_with(source, replace_graph_outputs=True)
    graph.remove(node, safe=True)


class _Lifting(passes.LiftConstantsToInitializersPass):
    """The library's pass, which before Python 3.12 spends most of its time on being sure that a tensor is one."""

    def __init__(self) -> None:
        super().__init__(lift_all_constants=True, size_limit=0)

    def _constant_node_attribute_to_tensor(
        self, node: ir.Node, attr_name: str, attr_value: ir.Attr, initializer_name: str
    ) -> ir.TensorProtocol | None:
        if attr_name == "value" and attr_value.type is ir.AttributeType.TENSOR:
            tensor: ir.TensorProtocol = attr_value.value
            return tensor
        if attr_name not in onnx.defs.get_schema("Constant").attributes:
            label = node.name or node.outputs[0].name
            raise ModelError(f"a Constant node holds {attr_name} and no value", f"node {label}", "export the model again")
        return super()._constant_node_attribute_to_tensor(node, attr_name, attr_value, initializer_name)


def lift_constants(model: ir.Model, counts: Counter[str]) -> None:
    """Turn ``Constant`` nodes into initializers of their graph, whichever attribute holds the value."""
    constants = [node for node in every_node(model.graph) if node.op_type == "Constant" and node.domain == ""]
    if constants:
        _Lifting()(model)
    counts["Constant nodes turned into initializers"] += sum(node.graph is None for node in constants)


def drop_empty_inputs(model: ir.Model, counts: Counter[str]) -> None:
    """Leave out optional inputs at the end of a node that are empty names, which mean the same.

    ONNX Runtime (1.31 was tried) dies while it opens a LayerNormalization with an empty bias, unless it optimizes nothing.
    """
    for node in every_node(model.graph):
        given = len(node.inputs)
        while given and node.inputs[given - 1] is None:
            given -= 1
        if node.domain == "" and given < len(node.inputs):
            counts["empty inputs left out"] += len(node.inputs) - given
            node.resize_inputs(given)


def remove_dead_nodes(model: ir.Model, counts: Counter[str]) -> None:
    """Remove nodes and initializers that no output of their graph depends on. Unused outputs of live nodes stay."""
    # onnx_ir's own pass also takes outputs off live nodes, and leaves initializers of subgraphs and what dead bodies read.
    counts["dead nodes removed"] += _remove_dead(model.graph)
    used = {value for node in every_node(model.graph) for value in node.inputs}
    for graph in every_graph(model.graph):
        for name, value in list(graph.initializers.items()):
            if value not in used and not value.is_graph_output() and not value.is_graph_input():
                del graph.initializers[name]
                counts["unused initializers removed"] += 1


def _remove_dead(graph: ir.Graph) -> int:
    removed = 0
    live: set[ir.Node] = set()
    pending = list(graph.outputs)
    while pending:
        node = pending.pop().producer()
        if node is None or node in live or node.graph is not graph:
            continue
        live.add(node)
        for inner in graphs_of(node):
            removed += _remove_dead(inner)
        pending += _read_by(node)
    dead = [node for node in graph if node not in live]
    for node in reversed(dead):
        _detach(node)
        graph.remove(node)
    return removed + len(dead)


def _read_by(node: ir.Node) -> list[ir.Value]:
    """The tensors that ``node`` reads, its subgraphs' reading of outer tensors included."""
    readers = [node, *(inner for graph in graphs_of(node) for inner in every_node(graph))]
    outputs = [value for graph in graphs_of(node) for value in graph.outputs]
    return [value for reader in readers for value in reader.inputs if value is not None] + outputs


def _detach(node: ir.Node) -> None:
    """Take ``node`` and the nodes of its subgraphs off the consumers of what they read."""
    for reader in [node, *(inner for graph in graphs_of(node) for inner in every_node(graph))]:
        for index in range(len(reader.inputs)):
            reader.replace_input_with(index, None)
