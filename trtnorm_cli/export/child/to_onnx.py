"""The two exporters of PyTorch, each writing an ONNX model with the names that the user knows."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch import nn

from trtnorm_cli.errors import ModelError
from trtnorm_cli.export.child import naming
from trtnorm_cli.export.child.arguments import Call, named_results
from trtnorm_cli.export.child.sizes.dimensions import Requested
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.progress import stage

# Weights above this go to a file beside the model.
_EXTERNAL_FROM_BYTES = 1 << 28
_WRAPPED = "wrapped"


@dataclass(frozen=True)
class Written:
    """The contents of the file, with the opset, the outputs' names and the exporter's warnings."""

    opset: int
    outputs: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Runnable:
    """A call with which the module was seen to run: the inputs as they were requested, and the names of the results."""

    requested: Requested
    call: Call
    outputs: Sequence[str]

    @property
    def tensors(self) -> list[str]:
        """The inputs of the ONNX model, in the order of the call."""
        return [name for name in self.call.order if name in self.requested.inputs]


def export_program(program: torch.export.ExportedProgram, ran: Runnable, opset: int, path: Path) -> Written:
    """Write an exported program with the dynamo exporter.

    Its optimiser stays off, because it would fold normalizations unproved.
    """
    with stage("write-onnx"), _collected_warnings() as messages:
        made = torch.onnx.export(program, dynamo=True, opset_version=opset, optimize=False, verbose=False)
    assert made is not None
    model = made.model
    names = _outputs(model, ran.outputs)
    naming.name_nodes(model)
    _finish(model, ran.requested, ran.tensors, names, path)
    return Written(model.opset_imports[""], tuple(names), tuple(messages))


def export_torchscript(module: nn.Module, ran: Runnable, opset: int, path: Path) -> Written:
    """Write a traced module with the TorchScript exporter, BatchNorm apart from its convolution."""
    requested, call, tensors = ran.requested, ran.call, ran.tensors
    flat = _Flat(module, call, tensors)
    axes = {name: _dynamic_axes(requested, name) for name in tensors}
    raw = path.with_suffix(".torchscript.onnx")
    with stage("torchscript"), _collected_warnings() as messages, torch.no_grad():
        torch.onnx.export(
            flat,
            tuple(call.tensors()[name] for name in tensors),
            str(raw),
            input_names=list(tensors),
            dynamic_axes={name: held for name, held in axes.items() if held},
            opset_version=opset,
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
            keep_initializers_as_inputs=False,
        )
    model = ir.load(raw)
    names = _outputs(model, ran.outputs)
    naming.name_nodes(model, _WRAPPED)
    naming.leave_out_prefix(model, _WRAPPED)
    _finish(model, requested, [value.name or "" for value in model.graph.inputs], names, path)
    return Written(model.opset_imports[""], tuple(names), tuple(messages))


def _finish(model: ir.Model, requested: Requested, inputs: Sequence[str], outputs: Sequence[str], path: Path) -> None:
    if len(model.graph.inputs) != len(inputs):
        written = ", ".join(value.name or "" for value in model.graph.inputs)
        raise ModelError(f"the exporter wrote the inputs {written or 'none'} for {', '.join(inputs)}")
    naming.name_interface(model, inputs, outputs)
    naming.name_sizes(model, {name: requested.inputs[name].shape for name in inputs})
    model.graph.name = "main"
    model.doc_string = model.graph.doc_string = None
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    ir.save(model, path, external_data=f"{path.name}.data" if size > _EXTERNAL_FROM_BYTES else None)


def _outputs(model: ir.Model, names: Sequence[str]) -> list[str]:
    """The names of the model's outputs, or those of the exporter where it did not write one for each result."""
    written = [value.name or "" for value in model.graph.outputs]
    return list(names) if len(names) == len(written) else written


def _dynamic_axes(requested: Requested, name: str) -> dict[int, str]:
    return {axis: dim for axis, dim in enumerate(requested.inputs[name].shape) if isinstance(dim, str)}


class _Flat(nn.Module):
    """A module that takes its tensors one by one and returns them as a tuple, as TorchScript wants them."""

    def __init__(self, module: nn.Module, call: Call, names: Sequence[str]) -> None:
        super().__init__()
        self.wrapped = module
        self._call, self._names = call, names
        self.train(module.training)

    def forward(self, *tensors: torch.Tensor) -> tuple[Any, ...]:
        call = self._call.with_tensors(dict(zip(self._names, tensors, strict=True)))
        return tuple(named_results(self.wrapped(*call.args, **call.kwargs), call).values())


@contextmanager
def _collected_warnings() -> Iterator[list[str]]:
    """The warnings that are about the user's model, each once."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield messages
    texts = (" ".join(str(entry.message).split()) for entry in caught if "Tracer" in entry.category.__name__)
    messages += dict.fromkeys(text[:300] for text in texts)
