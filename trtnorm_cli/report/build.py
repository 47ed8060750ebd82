"""The table at the end of a build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from trtnorm_cli.profile.fit import ProfileRecord
from trtnorm_cli.records.comparison import STANDS_IN, ComparisonRecord, OutputVerdict
from trtnorm_cli.report.cleaning import cleaning_text
from trtnorm_cli.report.compare import finite, state_text
from trtnorm_cli.report.composite_norms import counts_line
from trtnorm_cli.report.console import bytes_text, console, counts_text, print_warnings, shape_text, table
from trtnorm_cli.report.cost import cost_rows, plural, time_text
from trtnorm_cli.report.export import export_rows, export_warnings, print_export_details
from trtnorm_cli.report.notes import print_notes, print_results_alone
from trtnorm_cli.report.precision import precision_notes, precision_rows
from trtnorm_cli.report.types import type_rows
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.tensorrt.manifest import EngineFile, Kernels, Manifest, Optimization
from trtnorm_cli.tensorrt.variants import NOT_BUILT


def print_summary(
    manifest: Manifest,
    engine: Path,
    as_json: bool = False,
    verbosity: Verbosity = Verbosity.NORMAL,
    page: Path | None = None,
) -> None:
    """Print what was rewritten, how far the checks were off, what TensorRT made of it, and where the files are."""
    if verbosity is Verbosity.QUIET:
        print_results_alone(_files(engine, page), _warnings(manifest), as_json)
        return
    out = console(as_json)
    out.print(table("", ("", ""), summary_rows(manifest)), new_line_start=True)
    if manifest.export is not None:
        print_export_details(out, manifest.export, verbosity)
    print_warnings(out, manifest.rewrite_warnings)
    print_warnings(out, [f"NOT COMPARED: {line}" for line in (manifest.comparison.not_compared if manifest.comparison else ())])
    notes = () if manifest.precision is None else precision_notes(manifest.precision)
    print_notes(out, (*manifest.warnings, *notes), verbosity)
    out.print(f"\nengine    {engine}\nmanifest  {engine}.json", soft_wrap=True)
    if page is not None:
        out.print(f"report    {page}", soft_wrap=True)


def print_up_to_date(
    manifest: Manifest,
    engine: Path,
    as_json: bool = False,
    verbosity: Verbosity = Verbosity.NORMAL,
    page: Path | None = None,
) -> None:
    """That nothing had to be built, and what would build all the same."""
    if verbosity is Verbosity.QUIET:
        print_results_alone(_files(engine, page), manifest.rewrite_warnings, as_json)
        return
    versions = manifest.versions
    out = console(as_json)
    out.print(
        f"{engine} is up to date: made from the same model, profile and settings with {versions.backend} "
        f"{versions.tensorrt}; --force builds it again"
    )
    print_warnings(out, manifest.rewrite_warnings)
    if page is not None:
        out.print(f"report    {page}", soft_wrap=True)


def _files(engine: Path, page: Path | None) -> tuple[str, ...]:
    return str(engine), f"{engine}.json", *([] if page is None else [str(page)])


def _warnings(manifest: Manifest) -> list[str]:
    """The warnings of the export and of the rewriting."""
    return [*(export_warnings(manifest.export) if manifest.export else ()), *manifest.rewrite_warnings]


def summary_rows(manifest: Manifest) -> list[tuple[str, str]]:
    network, versions = manifest.network, manifest.versions
    rows = [
        *([] if manifest.export is None else export_rows(manifest.export)),
        ("cleaned", cleaning_text(manifest.cleaning) or "nothing to clean"),
        ("normalizations", counts_line(manifest.normalizations.nodes, manifest.normalizations.pieces)),
        ("rewritten", counts_text(dict(Counter(change.rule for change in manifest.changes).most_common()))),
        ("check error", _check_text(manifest.changes)),
        *((effect.asked, effect.measured) for effect in manifest.effects),
        ("comparison", _comparison_text(manifest.comparison)),
        ("network layers", counts_text(network.layers_by_type)),
        ("kernels", f"{network.launches}: {counts_text(network.kernels_by_type)}"),
    ]
    if manifest.cost is not None:
        rows += cost_rows(manifest.cost, network.kernels)
    if manifest.float32 is not None:
        rows.append(("  in float32", _kernels_text(manifest.float32)))
    rows += [*type_rows(manifest.types), *_optimize_rows(manifest.optimize, manifest.precision is not None)]
    if manifest.precision is not None:
        rows += precision_rows(manifest.precision)
    rows += [(f"profile {p.name}", _profile_text(p)) for p in manifest.optimization_profiles]
    rows += [
        ("engine size", bytes_text(manifest.engine.bytes)),
        *_target_rows(manifest.engine),
        ("backend", f"{versions.backend} {versions.tensorrt}"),
        ("time", ", ".join(f"{step} {seconds:.2f} s" for step, seconds in manifest.seconds.items())),
    ]
    return rows


def _check_text(changes: Sequence[Change]) -> str:
    if not changes:
        return "nothing was changed"
    worst = max(changes, key=lambda change: change.check.max_rel)
    exact = [change.check.float64_rel for change in changes if change.check.float64_rel is not None]
    in_float64 = f", {max(exact):.1e} in float64" if exact else ""
    return f"at most {worst.check.max_rel:.1e} of the largest value ({worst.node}){in_float64}"


def _optimize_rows(optimize: Optimization, lowered: bool) -> list[tuple[str, str]]:
    """The kernels without the rewriting, and what a search found; before another precision came, where one was asked for."""
    rows = []
    before, chosen = optimize.before, optimize.chosen
    if before is not None:
        rows.append(("  without rewriting", _kernels_text(before)))
    if optimize.more:
        rows.append(("  more kernels", optimize.more))
    if chosen is not None:
        every = "every other change" if chosen.not_tried else "every change"
        costs = {every: chosen.every_change, "no change": chosen.no_change, "chosen": chosen.chosen}
        compared = ", ".join(f"{name} {_choice_text(cost)}" for name, cost in costs.items() if cost is not None)
        if chosen.no_change is None:
            compared = f"{every} {_choice_text(chosen.every_change)}, which leaves nothing to gain without them"
        types = ", in the types of the file" if lowered else ""
        sites = len(chosen.left_out)
        left_out = f"{sites} {plural('site', sites)} left out, {chosen.builds} {plural('build', chosen.builds)}"
        rows.append(("  optimize", f"{compared}; {left_out}{types}"))
    return rows


def _choice_text(cost: Cost) -> str:
    if cost == NOT_BUILT:
        return "not built"
    kernels = f"{cost.launches} {plural('kernel', cost.launches)}"
    return f"{time_text(cost.us)} with {kernels}" if cost.us else kernels


def _kernels_text(kernels: Kernels) -> str:
    if kernels.reason:
        return kernels.reason
    estimate = "" if kernels.cost is None else f"; {time_text(kernels.cost.us)}, {bytes_text(kernels.cost.bytes)} moved"
    counts = counts_text(kernels.kernels_by_type)
    return f"{kernels.launches}: {counts}; {bytes_text(kernels.engine_bytes)}{estimate}"


def _comparison_text(comparison: ComparisonRecord | None) -> str:
    if comparison is None:
        return "left out"
    judged = [f"{c.label} {state_text(c.state)}{_worst(c.outputs)}" for c in comparison.candidates]
    at = f"; at {', '.join(comparison.at)}" if comparison.at else ""
    skipped = f"; not at {'; '.join(comparison.skipped)}" if comparison.skipped else ""
    # "as run" would otherwise tell of runs that there were none of.
    stand_ins = [note for note in comparison.notes if STANDS_IN in note][:1]
    return "; ".join([*judged, *stand_ins]) + at + skipped


def _target_rows(engine: EngineFile) -> list[tuple[str, str]]:
    """The compute capabilities that the engine was compiled for.

    There are none where it was built for the GPU of its machine.
    """
    if not engine.targets:
        return []
    return [("targets", ", ".join(engine.targets) + (" and newer" if engine.newer_too else ""))]


def _worst(outputs: Sequence[OutputVerdict]) -> str:
    """The largest errors of the outputs that were judged, and how they stand to rounding."""
    judged = [output for output in outputs if output.passed is not None]
    exact = finite(output.exact for output in judged)
    native = finite(output.native_distance for output in judged)
    shares = finite(output.share for output in judged if output.max_error is None)
    most = finite(output.max_error for output in judged)
    parts = [f"float64: {max(exact):.1e}"] if exact else []
    parts += [f"as run: {max(native):.1e}"] if native else []
    if shares:
        parts.append("within rounding" if max(shares) <= 1 else f"{max(shares):.2g} times what rounding explains")
    parts += [f"within max_error {max(most):g} where rounding says nothing"] if most else []
    return f" ({', '.join(parts)})" if parts else ""


def _profile_text(profile: ProfileRecord) -> str:
    shapes = (f"{name} {shape_text(s.min)} / {shape_text(s.opt)} / {shape_text(s.max)}" for name, s in profile.inputs.items())
    elements = (f"; elements of {name} {list(v.min)} / {list(v.opt)} / {list(v.max)}" for name, v in profile.values.items())
    return "; ".join(shapes) + "".join(elements)
