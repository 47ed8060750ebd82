"""Arguments and options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trtnorm_cli.limits import change_limit
from trtnorm_cli.profile.rewriting import DYNAMIC_QUANTIZATIONS, PRECISIONS
from trtnorm_cli.report.progress import ProgressChoice
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.tensorrt.backend import NAMES

model_argument = click.argument("model", type=click.Path(path_type=Path))
spec_argument = click.argument("model")
profile_option = click.option(
    "--profile",
    "-p",
    type=click.Path(path_type=Path),
    metavar="CFG.yaml",
    help="Read sizes and settings from this build profile.",
)
precision_option = click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="Compute in half (fp16), bfloat16 (bf16) or float32 (fp32) instead of the types of the file. Nodes that would spoil "
    "the result stay float32.",
)
dynamic_quantization_option = click.option(
    "--dynamic-quantization",
    type=click.Choice(DYNAMIC_QUANTIZATIONS),
    help="Compute with floats and dequantised weights (float) where the model quantises activations while it runs, which "
    "TensorRT has no operators for, in place of the profile's setting.",
)
snap_option = click.option(
    "--snap", is_flag=True, help="Move sizes of the profile that do not fit the model to the nearest sizes that fit."
)
weights_option = click.option(
    "--weights",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Load weights from this .safetensors, .safetensors.index.json or .pt file. A PyTorch model takes all of its weights "
    "from it, an ONNX model only those of normalizations whose parameters do not fit.",
)


def _size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Bytes of a size such as ``4GiB``. A bare number is refused, because it was bytes in one command and MiB in another."""
    if value is None:
        return None
    if value.strip().isdecimal():
        number = value.strip()
        raise click.BadParameter(f"'{number}' has no unit: write {number}MiB or {number}B")
    from pydantic import ValidationError

    from trtnorm_cli.profile.scalars import read_bytes

    try:
        most = read_bytes(value)
    except ValidationError as error:
        raise click.BadParameter(error.errors()[0]["msg"]) from None
    if most is not None:
        change_limit(most)
    return most


_MEMORY_HELP = (
    "Stop when the command, the builder or a run of the model uses more memory than this, e.g. 4GiB. Default: 90 % of what "
    "is free."
)
memory_option = click.option("--memory", callback=_size, metavar="SIZE", help=_MEMORY_HELP)
# For commands that hand it to nobody: what runs beside them has the same limit.
own_memory_option = click.option("--memory", callback=_size, metavar="SIZE", expose_value=False, help=_MEMORY_HELP)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout and everything else to stderr.")


class _Progress(click.ParamType):
    """``auto``, ``lines``, ``json``, ``json:FILE`` or ``none``."""

    name = "progress"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ProgressChoice:
        if isinstance(value, ProgressChoice):
            return value
        kind, colon, file = str(value).partition(":")
        if kind not in _PROGRESS or (colon and (kind != "json" or not file)):
            self.fail(f"'{value}' is none of {', '.join(_PROGRESS)}, json:FILE", param, ctx)
        return ProgressChoice(kind, Path(file) if file else None)


_PROGRESS = ("auto", "lines", "json", "none")
progress_option = click.option(
    "--progress",
    type=_Progress(),
    metavar="HOW",
    default="auto",
    show_default=True,
    help="Show progress on stderr: auto (a live line in a terminal, lines in a log), lines, json, json:FILE or none.",
)
backend_option = click.option(
    "--backend",
    type=click.Choice(NAMES),
    help="Choose the TensorRT package. Default: tensorrt where it can be imported, else tensorrt-rtx.",
)


def verbosity_options(function: Callable[..., object]) -> Callable[..., object]:
    """-q and -v, which the command gets as ``verbosity``."""

    @functools.wraps(function)
    def collecting(*, quiet: bool, verbose: bool, **arguments: Any) -> object:
        if quiet and verbose:
            raise click.UsageError("--quiet and --verbose exclude each other")
        verbosity = Verbosity.QUIET if quiet else Verbosity.VERBOSE if verbose else Verbosity.NORMAL
        return function(verbosity=verbosity, **arguments)

    with_verbose = click.option("--verbose", "-v", is_flag=True, help="Show every note, also those that need no action.")(
        collecting
    )
    with_both: Callable[..., object] = click.option(
        "--quiet", "-q", is_flag=True, help="Show only results, warnings and errors."
    )(with_verbose)
    return with_both


def export_options(function: Callable[..., object]) -> Callable[..., object]:
    """The options of an export, for every command that takes a PyTorch model. ``exporting`` collects them."""

    @functools.wraps(function)
    def collecting(**arguments: Any) -> object:
        from trtnorm_cli.export.options import ExportOptions

        return function(exporting=ExportOptions(**{name: arguments.pop(name) for name in _EXPORT_OPTIONS}), **arguments)

    with_options: Callable[..., object] = collecting
    for option in reversed(_EXPORT_OPTIONS.values()):
        with_options = option(with_options)
    return with_options


_EXPORT_OPTIONS: dict[str, Callable[[Callable[..., object]], Callable[..., object]]] = {
    "exporter": click.option(
        "--exporter",
        type=click.Choice(("auto", "dynamo", "torchscript")),
        default="auto",
        show_default=True,
        help="Choose the PyTorch exporter. auto tries dynamo, then torchscript.",
    ),
    "opset": click.option(
        "--opset", type=click.IntRange(min=7), help="Export to this ONNX opset. Default: the one that suits the backend best."
    ),
    "strict": click.option(
        "--no-strict",
        "strict",
        flag_value=False,
        default=True,
        help="Accept a --weights file that lacks names of the model, or has names that the model lacks.",
    ),
    "keep_training": click.option(
        "--keep-training", is_flag=True, help="Leave modules in training mode instead of calling eval()."
    ),
    "accepted": click.option(
        "--accept",
        "accepted",
        multiple=True,
        metavar="KIND",
        help="Export although KIND was refused. The error message names KIND. Repeatable.",
    ),
    "verify": click.option(
        "--no-verify",
        "verify",
        flag_value=False,
        default=True,
        help="Skip the numeric comparison of the export with the PyTorch model.",
    ),
}
