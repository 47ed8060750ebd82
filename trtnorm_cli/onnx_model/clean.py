"""Clean a model before its normalizations are looked at: functions inlined, constants folded, dead nodes removed.

onnx-ir carries the graph and inlines the functions, onnxscript folds the constants under the policy of ``fold.py``, and
ONNX infers the shapes. ``docs/cleaning.md`` has the measurements that chose these libraries.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from trtnorm_cli.errors import ModelError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.infer import add_inferred_shapes, checker_objection
from trtnorm_cli.onnx_model.late_imports import import_onnx_ir
from trtnorm_cli.onnx_model.plugin_functions import is_own
from trtnorm_cli.onnx_model.plugin_nodes import plugin_nodes
from trtnorm_cli.onnx_model.scans import without_refused_scans
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes

if TYPE_CHECKING:
    import onnx_ir as ir

    from trtnorm_cli.onnx_model.fold import RunModel


@dataclass(frozen=True)
class Cleaning:
    """A cleaned model, how often each thing was done, and what was left alone and why.

    Tensors that were in external files and were not folded are still references relative to the same folder. The model refers
    to large values that were folded on the ``shelves``, and must not outlive these.
    """

    model: onnx.ModelProto
    counts: dict[str, int]
    notes: tuple[str, ...]
    shelves: tuple[Shelf, ...] = field(default=(), repr=False, compare=False)


def clean(model: onnx.ModelProto, base_dir: Path | None = None, run: RunModel | None = None) -> Cleaning:
    """Inline functions, fold constants and remove dead nodes, so that parameters are constants wherever they can be.

    ``model`` is not changed; ``base_dir`` is the folder that its external tensors are relative to. Constants that only ONNX
    Runtime can evaluate are given to ``run``, which is to be a child process for the model of a stranger. The graph keeps its
    inputs and outputs: names, order, types and symbolic dimensions. Normalizations are neither evaluated nor altered.
    Shapes and types of inner tensors are inferred again; what the file says fills the gaps unless it contradicts them.
    Cleaning a cleaned model changes nothing.

    Raises ``ModelError`` when external data is missing, when a function cannot be inlined, and for sparse tensors.
    """
    _refuse_what_would_be_lost(model)
    cleaning = _clean_or_leave_constants(model, base_dir, run)
    changed, unrolled, stateful = without_refused_scans(cleaning.model)
    if changed is cleaning.model:
        return cleaning
    again = _clean_or_leave_constants(changed, base_dir, run)
    scans = {"Scans unrolled": unrolled, "Scans given a state": stateful}
    counts = Counter(cleaning.counts) + Counter(again.counts) + Counter(scans)
    notes = tuple(dict.fromkeys((*cleaning.notes, *again.notes)))
    return Cleaning(again.model, dict(counts), notes, (*cleaning.shelves, *again.shelves))


def _clean_or_leave_constants(model: onnx.ModelProto, base_dir: Path | None, run: RunModel | None) -> Cleaning:
    try:
        return _clean(model, base_dir, run, folding=True)
    except _FoldingFailed as failure:
        unfolded = _clean(model, base_dir, run, folding=False)
        note = f"constants were not folded: {failure}"
        return replace(unfolded, notes=(note, *unfolded.notes))


class _FoldingFailed(Exception):
    """The folded model cannot be used; the message says why."""


def _refuse_what_would_be_lost(model: onnx.ModelProto) -> None:
    for graph in all_graphs(model.graph):
        if graph.sparse_initializer:
            raise ModelError(
                "the model has sparse initializers, which TensorRT does not take",
                f"graph {graph.name}",
                "export the model with dense weights",
            )
    for node in all_nodes(model):
        for attribute in node.attribute:
            if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                raise ModelError(
                    "the model has sparse constants, which TensorRT does not take",
                    f"node {node.name or node.op_type}",
                    "export the model with dense weights",
                )


def _clean(model: onnx.ModelProto, base_dir: Path | None, run: RunModel | None, folding: bool) -> Cleaning:
    # onnx-ir and onnxscript take long to import, which no other command should pay.
    import_onnx_ir()
    from trtnorm_cli.onnx_model.attribute_defaults import write_out_defaults
    from trtnorm_cli.onnx_model.convolution_bias import make_biases_vectors
    from trtnorm_cli.onnx_model.einsum_letters import give_einsums_small_letters
    from trtnorm_cli.onnx_model.ir_constants import ConstantMaker
    from trtnorm_cli.onnx_model.ir_model import close_ir, open_ir
    from trtnorm_cli.onnx_model.loops import give_loops_a_condition
    from trtnorm_cli.onnx_model.native_nodes import read_plugins_natively
    from trtnorm_cli.onnx_model.operand_types import give_constants_the_type_of_the_data
    from trtnorm_cli.onnx_model.rotary_caches import expand_rotary_caches
    from trtnorm_cli.onnx_model.sequence_lists import replace_joined_sequences
    from trtnorm_cli.onnx_model.sequences import replace_sequence_elements
    from trtnorm_cli.onnx_model.tidy import (
        count_identities,
        drop_empty_inputs,
        inline_functions,
        lift_constants,
        pinned_outputs,
        remove_dead_nodes,
    )

    counts: Counter[str] = Counter()
    notes: list[str] = list(_notes_on(model))
    opened, shelf = open_ir(model, base_dir), Shelf()
    shapes: dict[ir.Value, ir.Shape] = {}
    with pinned_outputs(opened.model) as pins:
        read_plugins_natively(opened.model, {f.name for f in model.functions if is_own(f)}, counts)
        inline_functions(opened.model, counts, notes)
        lift_constants(opened.model, counts)
        drop_empty_inputs(opened.model, counts)
        remove_dead_nodes(opened.model, counts)
        write_out_defaults(opened.model, counts)
        identities = count_identities(opened.model) - pins
        if folding:
            shapes = _fold(opened.model, shelf, run, counts, notes)
            lift_constants(opened.model, counts)
        replaced = replace_sequence_elements(opened.model, counts) + replace_joined_sequences(opened.model, counts)
        replaced += expand_rotary_caches(opened.model, counts)
        if replaced and folding:
            shapes |= _fold(opened.model, shelf, run, counts, notes)
            lift_constants(opened.model, counts)
        give_loops_a_condition(opened.model, counts)
        make_biases_vectors(opened.model, counts)
        give_einsums_small_letters(opened.model, counts)
        give_constants_the_type_of_the_data(opened.model, counts)
    counts["identities removed"] = max(identities - count_identities(opened.model), 0)
    remove_dead_nodes(opened.model, counts)
    ConstantMaker(opened.model.graph, shelf).put_away()
    result = close_ir(opened, shapes)
    notes += add_inferred_shapes(result, {value.name or "" for value in shapes})
    _require_no_new_objection(model, result, folding)
    counts.update(_counts_of_inputs(model))
    return Cleaning(opened.filled(result), {what: n for what, n in counts.items() if n}, tuple(notes), (shelf,))


def _fold(
    model: ir.Model, shelf: Shelf, run: RunModel | None, counts: Counter[str], notes: list[str]
) -> dict[ir.Value, ir.Shape]:
    from trtnorm_cli.onnx_model.fold import fold_constants, run_here

    try:
        folding = fold_constants(model, shelf, run or run_here)
    except (ModelError, MemoryError):
        raise
    except Exception as error:  # whatever a defect in the library raises; the model can do without folding
        raise _FoldingFailed(f"{_root(error)} (from {type(error).__name__} in the folding library)") from error
    counts.update(folding.counts)
    notes += folding.notes
    return folding.shapes


def _root(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"


def _require_no_new_objection(source: onnx.ModelProto, result: onnx.ModelProto, folding: bool) -> None:
    """Refuse a result that the ONNX checker objects to when it had nothing against the source."""
    objection = checker_objection(result)
    if objection is None or checker_objection(source) is not None:
        return
    if folding:
        raise _FoldingFailed(f"the folded model is not valid ONNX: {objection}")
    raise ModelError(f"cleaning the model gave an invalid one: {objection}", None, "please report this model")


def _inputs_with_values(model: onnx.ModelProto) -> list[str]:
    values = {tensor.name for tensor in model.graph.initializer}
    return [entry.name for entry in model.graph.input if entry.name in values]


def _counts_of_inputs(model: onnx.ModelProto) -> dict[str, int]:
    return {"initializers taken off the input list": len(_inputs_with_values(model))}


def _notes_on(model: onnx.ModelProto) -> Iterator[str]:
    if model.training_info:
        yield "the model's training information was dropped"
    for node in plugin_nodes(model):
        if node.has_function and not node.is_own:
            yield f"{node.node} asks for the plugin {node.operator}, but its function in the file is used instead"
    names = _inputs_with_values(model)
    if names and model.ir_version >= 4:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        yield (
            f"{len(names)} inputs have a default value ({shown}); they are constants now, as TensorRT takes them, "
            "and can no longer be fed"
        )
