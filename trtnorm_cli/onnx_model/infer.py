"""Shapes of a cleaned model's tensors: inferred by ONNX, completed by what the file says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from trtnorm_cli.onnx_model.inference import infer_types, outputs_like_the_first_input
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.resized import with_scales_for_inference
from trtnorm_cli.onnx_model.shapes import TensorType, tensor_type
from trtnorm_cli.onnx_model.walk import all_graphs


def add_inferred_shapes(model: onnx.ModelProto, certain: set[str]) -> list[str]:
    """Replace the value infos of ``model``, in place, by inferred ones. Returns in words what could not be done.

    The value infos of the ``certain`` tensors are believed. Other dimensions that inference leaves open are taken from the
    old value infos, unless any of these contradicts what was inferred: then the file describes other shapes (a batch size
    from before the batch became dynamic) and none is believed.
    """
    declared = [_types(graph.value_info) for graph in all_graphs(model.graph)]
    light = light_copy(model)
    _forget(light, certain | set(_unknown_to_onnx(light)))
    inferred, problem = _infer(light, data_prop=True)
    if inferred is None:
        return [f"shapes were not inferred, those of the file stand: {problem}"]
    graphs = list(all_graphs(inferred.graph))
    found = [_types(graph.value_info) for graph in graphs]
    stale = next(_contradictions(declared, found), None)
    for graph, source, known, said in zip(all_graphs(model.graph), graphs, found, declared, strict=True):
        _write(graph, known if stale else _merged(known, said), known, source)
    return [f"the shapes in the file are out of date and were dropped: {stale}"] if stale else []


def mend_stated_shapes(model: onnx.ModelProto) -> list[str]:
    """Take back, in place, what ``model`` states of tensors and contradicts inference; returns it, for the outputs, in words.

    Operators without inference of their own (the further outputs of BatchNormalization-9) let a file state anything. A
    rewriting into others makes that a contradiction, which the checker refuses. Of an output that does not follow from the
    inputs alone, it looks at what is stated of the tensors inside as well, as the checker does.
    """
    notes, is_open = _mend(model, believed=False)
    return notes + _mend(model, believed=True)[0] if is_open else notes


def _mend(model: onnx.ModelProto, believed: bool) -> tuple[list[str], bool]:
    """The notes on what was taken back of outputs, and True where the shape of one is stated and is not found.

    What is stated of tensors inside is ``believed`` or not.
    """
    light = light_copy(model)
    if not believed:
        _forget(light, set())
    for graph in all_graphs(light.graph):
        _forget_shapes(graph.output)
    inferred, _ = _infer(light, data_prop=False)
    notes, is_open = list[str](), False
    for graph, known in zip(all_graphs(model.graph), all_graphs(inferred.graph) if inferred else (), strict=False):
        types = _types([*known.value_info, *known.output])
        stale = {name for name, kind in _types([*graph.value_info, *graph.output]).items() if not _fits(kind, types.get(name))}
        kept = [value for value in graph.value_info if value.name not in stale]
        del graph.value_info[:]
        graph.value_info.extend(kept)
        for value in graph.output:
            said, found = tensor_type(value), types.get(value.name)
            is_open |= said is not None and said.shape is not None and (found is None or found.shape is None)
            if value.name in stale and found is not None:
                value.CopyFrom(_value_info(value.name, found, value))
                notes.append(f"the file says that {value.name} is {_text(said or found)}, and it is {_text(found)}")
    return notes, is_open


def _fits(said: TensorType, known: TensorType | None) -> bool:
    return known is None or _agree(said, known)


def sound_types(light: onnx.ModelProto, data_prop: bool) -> list[dict[str, TensorType]] | None:
    """Types that follow from the inputs and weights alone, one table a graph, outermost first; None when inference fails.

    ``light`` is a model without large data and functions, and is changed. Its value infos are believed. Its statements about
    outputs, and about inputs of subgraphs, are not. ``data_prop`` follows single dimensions through shape arithmetic.
    """
    for graph in all_graphs(light.graph):
        _forget_shapes(graph.output)
        if graph is not light.graph:
            _forget_shapes(graph.input)
    inferred, _ = _infer(light, data_prop)
    if inferred is None:
        return None
    return [_types([*g.value_info, *g.input, *g.output]) for g in all_graphs(inferred.graph)]


def checker_objection(model: onnx.ModelProto, full_check: bool = False) -> str | None:
    """The objection of the ONNX checker to the structure of ``model``, in one line; None when it passes.

    With ``full_check``, strict shape inference may object too, but to sizes that runtimes multiply in float32.
    """
    light = light_copy(model)
    objection = _objection(light, full_check)
    if objection is None or not full_check:
        return objection
    resized = _with_scales_for_inference(light)
    return objection if resized is None else _objection(light, full_check=False) or _objection(resized, full_check=True)


def _with_scales_for_inference(light: onnx.ModelProto) -> onnx.ModelProto | None:
    """``light`` with the scales that all of its Resizes need; None where they need none."""
    found = None
    while (inferred := _infer(found or light, data_prop=True)[0]) is not None:
        more = with_scales_for_inference(found or light, inferred)
        if more is None:
            break
        found = more
    return found


def does_not_fit_together(model: onnx.ModelProto) -> bool:
    """True where shapes contradict each other that are worked out inside of ``model``: the checker does not follow these."""
    try:
        light = light_copy(model)
        light = _with_scales_for_inference(light) or light
        onnx.shape_inference.infer_shapes(light, check_type=True, strict_mode=True, data_prop=True)
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):
        return True
    return False


def _objection(light: onnx.ModelProto, full_check: bool) -> str | None:
    try:
        onnx.checker.check_model(light, full_check=full_check)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError) as error:
        return " ".join(str(error).split("\n\n==> Context:")[0].split())
    return None


def _infer(model: onnx.ModelProto, data_prop: bool) -> tuple[onnx.ModelProto | None, str]:
    try:
        return infer_types(model, data_prop), ""
    except Exception as error:  # the inference library raises RuntimeError, ValueError and its own errors alike
        return None, " ".join(str(error).split())[:200]


def _unknown_to_onnx(model: onnx.ModelProto) -> Iterator[str]:
    """Tensors whose shape ONNX cannot infer, because their operator has no schema."""
    for graph in all_graphs(model.graph):
        for node in graph.node:
            if not onnx.defs.has(node.op_type, node.domain) and not outputs_like_the_first_input(node):
                yield from node.output


def _forget(model: onnx.ModelProto, kept: set[str]) -> None:
    """Drop the value infos of all tensors but ``kept``."""
    for function in model.functions:
        del function.value_info[:]
    for graph in all_graphs(model.graph):
        believed = [value for value in graph.value_info if value.name in kept]
        del graph.value_info[:]
        graph.value_info.extend(believed)


def _forget_shapes(values: Iterable[onnx.ValueInfoProto]) -> None:
    for value in values:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")


def _types(values: Iterable[onnx.ValueInfoProto]) -> dict[str, TensorType]:
    found = {}
    for value in values:
        kind = tensor_type(value)
        if kind is not None:
            found[value.name] = _without_made_up_names(kind)
    return found


def _without_made_up_names(kind: TensorType) -> TensorType:
    """Inference names what it does not know ``unk__0``; such a name says nothing."""
    if kind.shape is None or not any(isinstance(size, str) for size in kind.shape):
        return kind
    return TensorType(kind.dtype, tuple(None if isinstance(s, str) and s.startswith("unk__") else s for s in kind.shape))


def _contradictions(declared: list[dict[str, TensorType]], found: list[dict[str, TensorType]]) -> Iterator[str]:
    for said, known in zip(declared, found, strict=True):
        for name, kind in said.items():
            if name in known and not _agree(kind, known[name]):
                yield f"{name} is {_text(kind)} in the file and {_text(known[name])} by inference"


def _agree(said: TensorType, known: TensorType) -> bool:
    if said.shape is None or known.shape is None:
        return True
    if len(said.shape) != len(known.shape):
        return False
    pairs = zip(said.shape, known.shape, strict=True)
    return all(not isinstance(s, int) or k is None or s == k for s, k in pairs)


def _text(kind: TensorType) -> str:
    return "[" + ", ".join("?" if size is None else str(size) for size in kind.shape or ()) + "]"


def _merged(known: dict[str, TensorType], said: dict[str, TensorType]) -> dict[str, TensorType]:
    """``known`` with its gaps filled from ``said``."""
    return {name: _filled(known.get(name), said.get(name)) for name in {**said, **known}}


def _filled(known: TensorType | None, said: TensorType | None) -> TensorType:
    if known is None or said is None:
        kind = known or said
        assert kind is not None
        return kind
    if known.shape is None or said.shape is None:
        return TensorType(known.dtype or said.dtype, said.shape if known.shape is None else known.shape)
    shape = tuple(s if k is None else k for k, s in zip(known.shape, said.shape, strict=True))
    return TensorType(known.dtype or said.dtype, shape)


def _write(
    graph: onnx.GraphProto, types: dict[str, TensorType], known: dict[str, TensorType], inferred: onnx.GraphProto
) -> None:
    """Make ``types`` the value infos of ``graph``; those of sequences and optionals stay.

    Most of them are ``known`` in full, and stand in ``inferred`` as they are to be written.
    """
    others = [value for value in graph.value_info if tensor_type(value) is None]
    stated = {value.name for value in (*graph.input, *graph.output)} | {t.name for t in graph.initializer}
    names = [name for node in graph.node for name in node.output if name in types and name not in stated]
    described = {value.name: value for value in graph.value_info if value.doc_string or value.metadata_props}
    ready = {value.name: value for value in inferred.value_info if value.name not in described}
    written = [
        ready[name] if name in ready and _is_in_full(known.get(name), types[name]) else _value_info(name, types[name], given)
        for name, given in ((name, described.get(name)) for name in dict.fromkeys(names))
    ]
    del graph.value_info[:]
    graph.value_info.extend([*written, *others])


def _is_in_full(known: TensorType | None, kind: TensorType) -> bool:
    """True where ``kind`` is what is ``known``, and no dimension is left open."""
    return known == kind and kind.shape is not None and None not in kind.shape


def _value_info(name: str, kind: TensorType, template: onnx.ValueInfoProto | None = None) -> onnx.ValueInfoProto:
    value = onnx.helper.make_tensor_value_info(name, kind.dtype, kind.shape)
    if template is not None:
        if template.doc_string:
            value.doc_string = template.doc_string
        value.metadata_props.extend(template.metadata_props)
    return value
