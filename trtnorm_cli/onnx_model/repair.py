"""Mend what has one meaning only in a file that ONNX's checker or ONNX Runtime objects to.

``docs/repaired_files.md`` lists what is mended, and what the checker, ONNX Runtime and TensorRT make of each as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model import file_repairs
from trtnorm_cli.onnx_model.batchnorm_outputs import settle_batchnorm_outputs
from trtnorm_cli.onnx_model.complementary_error import write_out_erfc
from trtnorm_cli.onnx_model.function_opsets import (
    adopt_new_meanings,
    adopt_opsets,
    convert_functions,
    import_default_domain,
    write_default_attributes,
)
from trtnorm_cli.onnx_model.idle_squeezes import keep_long_axes

_SHOWN = 3


@dataclass(frozen=True)
class Repair:
    """``mend`` changes a model in place and returns what it is about, by name; nothing when there is nothing to do.

    ``note`` tells the user, with the number and the names in it. ``runs_unmended`` is true where ONNX Runtime takes the file as
    it stands and gives it this meaning.
    """

    mend: Callable[[onnx.ModelProto], Sequence[str]]
    note: str
    runs_unmended: bool = True


@dataclass(frozen=True)
class Mended:
    """The repairs, in words, and whether ONNX Runtime would have run the file as it stands."""

    notes: tuple[str, ...] = ()
    runs_unmended: bool = True


def _unstated_ir_version(model: onnx.ModelProto) -> Sequence[str]:
    return () if model.HasField("ir_version") else file_repairs.set_ir_version(model)


# In this order: BatchNormalization reads its mode in the opset that its function is written for, and types are inferred last.
REPAIRS: tuple[Repair, ...] = (
    Repair(
        file_repairs.use_one_name_for_the_domain,
        "the domain of {count} nodes ({names}) is called ai.onnx, which is the default",
    ),
    Repair(file_repairs.import_domains, "{count} domains ({names}) are used and not imported"),
    Repair(file_repairs.drop_repeated_metadata, "{count} keys of the metadata ({names}) are there twice; the first counts"),
    Repair(file_repairs.name_graphs, "{count} graphs have no name"),
    Repair(file_repairs.drop_idle_nodes, "{count} nodes ({names}) have neither inputs nor outputs and were dropped"),
    Repair(
        file_repairs.name_nodes_apart,
        "{count} nodes ({names}) have the name of another and were given their own",
        runs_unmended=False,
    ),
    Repair(
        file_repairs.type_attributes,
        "{count} attributes ({names}) do not say of which type they are; it is that of their value",
        runs_unmended=False,
    ),
    Repair(
        file_repairs.drop_repeated_attributes,
        "{count} attributes ({names}) are given twice, with one value",
        runs_unmended=False,
    ),
    Repair(
        file_repairs.drop_repeated_initializers,
        "{count} initializers ({names}) are there again or cannot be read, and were dropped",
    ),
    Repair(file_repairs.drop_repeated_values, "{count} tensors ({names}) hold their values twice"),
    Repair(file_repairs.sort_nodes, "{count} nodes ({names}) stand before what they read, and were put in order"),
    Repair(
        write_out_erfc,
        "{count} nodes ({names}) are Erfc, an operator of TensorFlow that ONNX does not have, and were written as 1 - erf",
        runs_unmended=False,
    ),
    Repair(
        import_default_domain,
        "the model does not say which ONNX opset it uses; it is that of its {count} functions ({names})",
        runs_unmended=False,
    ),
    Repair(
        settle_batchnorm_outputs,
        "{count} BatchNormalizations ({names}) list other outputs than their mode has; unused ones were named or left out",
        runs_unmended=False,
    ),
    Repair(
        write_default_attributes, "{count} calls of functions rely on default values ({names}), which were written into them"
    ),
    Repair(
        convert_functions,
        "{count} nodes of functions ({names}) do not exist in the model's opset and were converted to it",
        runs_unmended=False,
    ),
    Repair(
        adopt_new_meanings,
        "{count} nodes of functions ({names}) mean what they do in the model's opset, as ONNX Runtime and TensorRT take them",
    ),
    Repair(adopt_opsets, "{count} functions ({names}) import another opset than the model, and were given the model's"),
    Repair(
        keep_long_axes,
        "{count} Squeezes ({names}) take away axes that are longer than 1; by the shapes in the file these stay, as they do in "
        "torch.squeeze",
        runs_unmended=False,
    ),
    Repair(file_repairs.type_outputs, "{count} outputs ({names}) have no type in the file; the one that follows was taken"),
    Repair(_unstated_ir_version, "the file does not say of which IR version it is", runs_unmended=False),
    Repair(
        file_repairs.set_ir_version, "IR version {names} does not have what the file uses (initializers that are no inputs)"
    ),
)


def mend(model: onnx.ModelProto) -> Mended:
    """Apply all ``REPAIRS`` to ``model`` in place."""
    notes, runs = [], True
    for repair in REPAIRS:
        about = repair.mend(model)
        if about:
            notes.append(repair.note.format(count=len(about), names=_listed(about)))
            runs = runs and repair.runs_unmended
    return Mended(tuple(notes), runs)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
