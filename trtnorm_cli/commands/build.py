"""``trtnorm build``: rewrite a model, prove each change, and build an engine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trtnorm_cli.commands.options import (
    backend_option,
    dynamic_quantization_option,
    export_options,
    json_option,
    memory_option,
    precision_option,
    profile_option,
    progress_option,
    snap_option,
    spec_argument,
    verbosity_options,
    weights_option,
)
from trtnorm_cli.report.progress import ProgressChoice, shown_progress
from trtnorm_cli.report.verbosity import Verbosity

if TYPE_CHECKING:
    from trtnorm_cli.export.options import ExportOptions


@click.command("build")
@spec_argument
@profile_option
@precision_option
@dynamic_quantization_option
@snap_option
@weights_option
@click.option(
    "--output", "-o", type=click.Path(path_type=Path), metavar="OUT.engine",
    help="Write the engine to this file. Default: MODEL's name in the current folder.",
)  # fmt: skip
@backend_option
@export_options
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Stop the builder, or a run of the model, after this many seconds.  [default: none, and 300 for a run]",
)  # fmt: skip
@memory_option
@click.option("--force", is_flag=True, help="Build even when the engine is up to date.")
@click.option("--check-reproducible", is_flag=True, help="Rewrite and build twice, and fail when the bytes differ.")
@click.option(
    "--isolate", is_flag=True, help="Find and save the smallest part of the model that fails alike, if the build fails."
)
@click.option("--no-compare", is_flag=True, help="Skip the numeric comparison of TensorRT's network with the model.")
@click.option("--require-compare", is_flag=True, help="Fail, instead of warning, when that comparison cannot be made.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Draw the random inputs of comparisons from this seed.",
)
@click.option(
    "--report", type=click.Path(path_type=Path), metavar="FILE.html",
    help="Write the report on the engine to this file, as `trtnorm report` does. Needs the extra `report`.",
)  # fmt: skip
@json_option
@progress_option
@verbosity_options
def command(
    model: str,
    profile: Path | None,
    precision: str | None,
    dynamic_quantization: str | None,
    snap: bool,
    weights: Path | None,
    output: Path | None,
    backend: str | None,
    exporting: ExportOptions,
    timeout: float | None,
    memory: int | None,
    force: bool,
    check_reproducible: bool,
    isolate: bool,
    no_compare: bool,
    require_compare: bool,
    seed: int,
    report: Path | None,
    as_json: bool,
    progress: ProgressChoice,
    verbosity: Verbosity,
) -> None:
    """Rewrite MODEL, prove each change numerically, and build a TensorRT engine from it.

    MODEL is an ONNX file, or a PyTorch model as `trtnorm export` takes it. A PyTorch model is exported first.

    Compares TensorRT's network with the model, then writes OUT.engine and its manifest OUT.engine.json. A model whose inputs
    are all static needs no --profile. An engine made from the same model, profile and programs is up to date and is not built
    again.

    \b
    Example:
      trtnorm build resnet18.onnx --profile configs/resnet18.yaml -o resnet18.engine
      trtnorm build model.py:resnet18 --profile cfg.yaml
    """
    from trtnorm_cli import pipeline
    from trtnorm_cli.export.opening import opened_model
    from trtnorm_cli.report.page.write import require_report_possible, write_report
    from trtnorm_cli.report.profile import print_proof
    from trtnorm_cli.rewrite.prepare import prepare
    from trtnorm_cli.target import parse_model
    from trtnorm_cli.tensorrt.backend import require_backend
    from trtnorm_cli.tensorrt.manifest import manifest_of

    options = pipeline.BuildOptions(
        backend, timeout, memory, check_reproducible, isolate, not no_compare, seed, require_compare
    )
    require_backend(backend)
    target = parse_model(model)
    engine = output or Path(f"{target.stem}.engine")
    export = replace(exporting, backend=backend, seed=seed, weights=weights)
    with (
        shown_progress("build", progress, verbosity),
        opened_model(target, profile, export, precision, dynamic_quantization) as opened,
    ):
        prepared = prepare(opened, snap, partial(pipeline.begin, opened=opened, backend=backend))
        if report is not None:
            require_report_possible(report, [engine, manifest_of(engine), *pipeline.sources_of(prepared)])
        print_proof(prepared.proof, verbosity)
        earlier = None if force else pipeline.earlier_build(prepared, engine, options)
        manifest = earlier or pipeline.build(prepared, engine, options)
        if report is not None:
            write_report(manifest, report)
    from trtnorm_cli.report.build import print_summary, print_up_to_date  # now that it is known what to say
    from trtnorm_cli.report.json_output import json_text
    from trtnorm_cli.report.next_command import Given, after_build, print_next

    if as_json:
        click.echo(json_text("manifest", manifest.to_json()))
    printed = print_summary if earlier is None else print_up_to_date
    printed(manifest, engine, as_json, verbosity, report)
    given = Given(profile, precision, dynamic_quantization, weights, backend)
    following = after_build(model, engine, manifest, given) if earlier is None else ["inspect", str(engine)]
    print_next(following, as_json, verbosity)
