"""Is there a gap between sound candidates and defective ones? Measured over allowed, on models that nobody here wrote.

    python -m benchmarks.verdict_gap measure MODEL.onnx[=CFG.yaml] … --seeds 0,1,2 -o gap.jsonl
    python -m benchmarks.verdict_gap plot gap.jsonl docs/verdict_gap.svg        (needs matplotlib)

For each model and seed the rewritten model is compared with the source at the smallest shapes, and so are copies of it with
one planted defect each: one output channel of one weight multiplied by 1 + 1e-4. Both are held to the bounds of
``trtnorm compare``, but for what that passes without measuring, or after the first of the runs that measure noise: here all
of them are made.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.compare import comparer, verdict
from trtnorm_cli.compare.calibration import RUNS
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.participants import onnx_participant
from trtnorm_cli.compare.result import Comparison, Options
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.compare.trials import trials_of
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.evaluate.tolerance import Bound, both
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare

DEFECT = 1e-4
SMALLEST = 1e-5
# The operand with the weight, and its axis of output channels.
WEIGHTS = {"Conv": (1, 0), "ConvTranspose": (1, 1), "Gemm": (1, 0), "MatMul": (1, -1), "LayerNormalization": (1, 0)}


@click.group()
def main() -> None:
    """Measure, then plot."""


@main.command()
@click.argument("models", nargs=-1, required=True)
@click.option("--seeds", default="0")
@click.option("--defects", default=3, help="Copies with a defect for each model and seed.")
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True)
def measure(models: tuple[str, ...], seeds: str, defects: int, output: Path) -> None:
    """Write one JSON line for each model, seed and candidate."""
    verdict.without_calibration = lambda *arguments: Bound(both(0.0), both(0.0))  # type: ignore[assignment]
    verdict.FIRST_RUNS = comparer.FIRST_RUNS = RUNS
    numbers = [int(seed) for seed in seeds.split(",")]
    with output.open("a") as out:
        for text in models:
            model, _, profile = text.partition("=")
            try:
                for record in _records(Path(model), Path(profile) if profile else None, numbers, defects):
                    out.write(json.dumps(record) + "\n")
                    out.flush()
            except TrtnormError as error:
                print(f"{model}: {error.summary}", file=sys.stderr)


def _records(model: Path, profile: Path | None, seeds: list[int], defects: int) -> Iterator[dict[str, object]]:
    prepared = prepare(OpenedModel.of_file(model, profile))
    rewriting = prepared.rewrite()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fixed = folder / "sound.onnx"
        save_model(rewriting.model, fixed, rewriting.folder)
        reference = onnx_participant(model)
        for seed in seeds:
            files = [fixed, *_planted(fixed, folder, seed, defects)]
            candidates = [replace(onnx_participant(file, file.stem), shares_tensors=True) for file in files]
            trials = trials_of(reference, prepared.profile, Settings(seed=seed, in_between=0)).trials
            smallest = min(trials, key=lambda trial: trial.elements)
            found = compare(reference, candidates, [smallest], Options())
            yield from _lines(found, model.stem, seed)


def _lines(found: Comparison, model: str, seed: int) -> Iterator[dict[str, object]]:
    for report in found.candidates:
        shares = [verdict.share for verdict in report.verdicts if verdict.share is not None]
        shares += [report.inner.share] if report.inner is not None else []
        yield {
            "model": model,
            "seed": seed,
            "candidate": report.label,
            "state": report.state,
            "share": max(shares, default=None),
            "inside": None if report.inner is None else report.inner.text(),
            "exact": max((v.exact for v in report.verdicts if v.exact is not None), default=None),
        }


def _planted(fixed: Path, folder: Path, seed: int, defects: int) -> Iterator[Path]:
    """Copies of the model with one channel of one weight off, early, in the middle and late."""
    model = onnx.load(str(fixed))
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    sites = [
        (stored[node.input[WEIGHTS[node.op_type][0]]], WEIGHTS[node.op_type][1])
        for node in model.graph.node
        if node.op_type in WEIGHTS and node.input[WEIGHTS[node.op_type][0]] in stored
    ]
    rng = np.random.default_rng(seed)
    for number, index in enumerate(sorted({int(i) for i in np.linspace(0, len(sites) - 1, defects)}) if sites else []):
        tensor, axis = sites[index]
        kept = onnx.TensorProto()
        kept.CopyFrom(tensor)
        values = np.moveaxis(numpy_helper.to_array(tensor).copy(), axis, 0)
        values[rng.integers(len(values))] *= 1 + DEFECT
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(np.moveaxis(values, 0, axis)), tensor.name))
        path = folder / f"defect {number}.onnx"
        onnx.save(model, str(path))
        tensor.CopyFrom(kept)
        yield path


@main.command()
@click.argument("records", type=click.Path(path_type=Path))
@click.argument("picture", type=click.Path(path_type=Path))
def plot(records: Path, picture: Path) -> None:
    """Draw measured over allowed, sound rewritings against planted defects."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    lines = [json.loads(line) for line in records.read_text().splitlines()]
    # Without float64, of classical machine learning for one, there is nothing that a defect of 1e-4 could be told by.
    lines = [line for line in lines if line["exact"] is not None and line["state"] != "not compared"]
    sound = [max(line["share"], SMALLEST) for line in lines if line["candidate"] == "sound"]
    planted = [max(line["share"], SMALLEST) for line in lines if line["candidate"] != "sound"]
    figure, axes = pyplot.subplots(figsize=(8, 3.2))
    bins = np.logspace(np.log10(SMALLEST), 6, 55)
    axes.hist(sound, bins, label=f"sound: {len(sound)} comparisons", color="#3b7dd8")
    axes.hist(planted, bins, label=f"one channel off by 1e-4: {len(planted)}", color="#d8703b")
    axes.axvline(1, color="black", linewidth=1)
    axes.text(1.15, 0.95, "allowed", transform=axes.get_xaxis_transform(), va="top")
    axes.set(xscale="log", xlabel="measured / allowed", ylabel="comparisons")
    axes.legend()
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})
    print(f"{len({line['model'] for line in lines})} models; sound: at most {max(sound):.2g}")
    print(f"planted: at least {min(planted):.2g}, median {np.median(planted):.3g}")


if __name__ == "__main__":
    main()
