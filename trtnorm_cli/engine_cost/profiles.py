"""The kernels of one optimization profile: an engine has some for each, and a run launches those of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, KernelTensor

# The builder marks names of all profiles but the first, and numbers the parts that it compiles.
_MARK = re.compile(r" \[profile (\d+)\]")
_PART = re.compile(r"_myl(\d+)_\d+$")


def of_profile(kernels: Sequence[CompiledLayer], index: int) -> tuple[CompiledLayer, ...]:
    """The kernels of the optimization profile ``index``, under the names of the first.

    What cannot be told apart is launched with every profile.
    """
    profiles: dict[str, int] = {}
    for kernel in kernels:
        if isinstance(kernel, Kernel):
            part = _part(kernel)
            profiles[part] = max(profiles.get(part, 0), *_marks(kernel))
    several = max(profiles.values(), default=0) > 0
    return tuple(
        _unmarked(kernel) if isinstance(kernel, Kernel) else kernel
        for kernel in kernels
        if not several or not isinstance(kernel, Kernel) or profiles[_part(kernel)] == index
    )


def _part(kernel: Kernel) -> str:
    found = _PART.search(kernel.name)
    return found[1] if found else ""


def _marks(kernel: Kernel) -> list[int]:
    names = (kernel.name, *kernel.onnx_nodes, *(tensor.name for tensor in (*kernel.inputs, *kernel.outputs)))
    return [0, *(int(mark) for name in names for mark in _MARK.findall(name))]


def _unmarked(kernel: Kernel) -> Kernel:
    return replace(
        kernel,
        name=_MARK.sub("", kernel.name),
        inputs=tuple(map(_without_mark, kernel.inputs)),
        outputs=tuple(map(_without_mark, kernel.outputs)),
        onnx_nodes=tuple(_MARK.sub("", name) for name in kernel.onnx_nodes),
    )


def _without_mark(tensor: KernelTensor) -> KernelTensor:
    return replace(tensor, name=_MARK.sub("", tensor.name)) if _MARK.search(tensor.name) else tensor
