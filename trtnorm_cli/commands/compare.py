"""``trtnorm compare``: candidates against a reference, on the same inputs."""

from __future__ import annotations

from pathlib import Path

import click

from trtnorm_cli.commands.options import (
    backend_option,
    dynamic_quantization_option,
    json_option,
    memory_option,
    precision_option,
    profile_option,
    progress_option,
    snap_option,
    verbosity_options,
    weights_option,
)
from trtnorm_cli.report.progress import ProgressChoice, shown_progress
from trtnorm_cli.report.verbosity import Verbosity

_EXIT_OUT_OF_TOLERANCE = 1
_EXIT_NOT_RUN = 5


@click.command("compare")
@click.argument("reference", metavar="REFERENCE")
@click.argument("candidates", metavar="[CANDIDATE]...", nargs=-1)
@profile_option
@precision_option
@dynamic_quantization_option
@weights_option
@snap_option
@click.option(
    "--data", type=click.Path(path_type=Path), help="Read inputs from an .npz, a folder of .npy files, or polygraphy's JSON."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Draw random inputs from this seed.")
@click.option(
    "--in-between", type=click.IntRange(min=0), default=2, show_default=True, metavar="N",
    help="Compare at N random shapes of each optimization profile too, besides min, opt and max.",
)  # fmt: skip
@click.option("--atol", type=click.FloatRange(min=0), help="Allow this absolute error, instead of the calibrated limit.")
@click.option(
    "--rtol",
    type=click.FloatRange(min=0),
    help="Allow this error relative to each reference value, instead of the calibrated limit.",
)
@click.option("--by-position", is_flag=True, help="Match inputs and outputs by position where the names differ.")
@click.option("--no-blame", is_flag=True, help="Skip the search for the first node where a failing candidate differs.")
@click.option(
    "--save", type=click.Path(path_type=Path), metavar="STEM",
    help="Save the sub-models that show a difference under this name.  [default: REFERENCE's stem + .difference]",
)  # fmt: skip
@click.option(
    "--budget", type=click.FloatRange(min=0), default=60.0, show_default=True, metavar="SECONDS",
    help="Skip a float64 run that would take longer than this.",
)  # fmt: skip
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=300.0, show_default=True, metavar="SECONDS",
    help="Stop a run in ONNX Runtime or TensorRT after this many seconds.",
)  # fmt: skip
@memory_option
@backend_option
@click.option(
    "--junit", type=click.Path(path_type=Path), metavar="FILE.xml",
    help="Write the verdicts to this file too, as JUnit test cases that a CI server shows.",
)  # fmt: skip
@json_option
@progress_option
@verbosity_options
def command(
    reference: str,
    candidates: tuple[str, ...],
    profile: Path | None,
    precision: str | None,
    dynamic_quantization: str | None,
    weights: Path | None,
    snap: bool,
    data: Path | None,
    seed: int,
    in_between: int,
    atol: float | None,
    rtol: float | None,
    by_position: bool,
    no_blame: bool,
    save: Path | None,
    budget: float,
    timeout: float,
    memory: int | None,
    backend: str | None,
    junit: Path | None,
    as_json: bool,
    progress: ProgressChoice,
    verbosity: Verbosity,
) -> int:
    """Compare candidates with a reference on the same inputs.

    Exits with 1 when one is out of tolerance, and with 5 when one cannot be run or nothing could be compared.

    A participant is an ONNX file, network:MODEL.onnx (what TensorRT's parser makes of that file), or an engine, which needs a
    GPU. The reference may also be a PyTorch model as `trtnorm export` takes it. Without a candidate, the model is compared with
    its rewriting and with the TensorRT network of that.

    \b
    Example:
      trtnorm compare resnet18.onnx --profile configs/resnet18.yaml
      trtnorm compare model.onnx network:model.onnx --data inputs.npz
      trtnorm compare model.py:resnet18 model.onnx
    """
    from trtnorm_cli import api
    from trtnorm_cli.compare.record import comparison_record
    from trtnorm_cli.compare.result import Options
    from trtnorm_cli.compare.settings import Settings
    from trtnorm_cli.profile.model import Tolerance
    from trtnorm_cli.report.compare import print_comparison
    from trtnorm_cli.report.comparison_junit import require_junit_possible, write_junit
    from trtnorm_cli.report.console import console
    from trtnorm_cli.report.json_output import json_text
    from trtnorm_cli.report.next_command import Given, after_comparison, print_next
    from trtnorm_cli.target import parse_target

    target, others = parse_target(reference), [parse_target(candidate) for candidate in candidates]
    settings = Settings(
        Options(by_position, budget, timeout, memory),
        seed=seed,
        snap=snap,
        weights=weights,
        in_between=in_between,
        data=data,
        tolerance=None if atol is None and rtol is None else Tolerance(atol=atol, rtol=rtol),
        backend=backend,
        find_blame=not no_blame,
        save_to=save or Path(f"{target.stem}.difference"),
    )
    if junit is not None:
        named = (target.path, *(other.path for other in others), profile, weights, data)
        require_junit_possible(junit, [path for path in named if path is not None])
    with shown_progress("compare", progress, verbosity):
        comparison = api.compare_targets(target, others, profile, settings, precision, dynamic_quantization)
    shown_seed = None if data else seed
    record = comparison_record(comparison, shown_seed)
    if as_json:
        click.echo(json_text("compare", record.to_json()))
    print_comparison(console(stderr=as_json), comparison, shown_seed, verbosity)
    if junit is not None:
        write_junit(record, junit)
    given = Given(profile, precision, dynamic_quantization, weights, backend)
    print_next(after_comparison(target, others, comparison, given), as_json, verbosity)
    if comparison.is_out_of_tolerance:
        return _EXIT_OUT_OF_TOLERANCE
    return 0 if comparison.passed else _EXIT_NOT_RUN
