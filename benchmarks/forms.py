"""Build forms of normalizations twice, as they are and with trtnorm, and write the page of what comes out."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli import BuildOptions, CompareSettings, TrtnormError, build, compare
from trtnorm_cli.child_process import Limits
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.rewrite.proof.sampling import draw
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest, ShapeTriple

DOCS = Path(__file__).parents[1] / "docs"
BACKEND = "tensorrt-rtx"
# A parsed network further from the model than this computes something else.
_WRONG = 1e-2
_LONGEST = 110


@dataclass(frozen=True)
class Form:
    """One form. ``profile`` is what the build profile says besides shapes; ``weights`` is a checkpoint beside the model.

    ``ranges`` gives min, opt and max of inputs; dynamic inputs without one get fixed sizes.
    """

    section: str
    name: str
    model: onnx.ModelProto
    profile: str = ""
    weights: dict[str, np.ndarray] = field(default_factory=dict)
    ranges: dict[str, ShapeTriple] = field(default_factory=dict)


@dataclass(frozen=True)
class Book:
    """A page of forms: what it is called, the module that makes it, and where it is.

    ``shows_runtime`` adds a column for what ONNX Runtime says of the file.
    """

    title: str
    module: str
    path: Path
    forms: Callable[[], Iterable[Form]]
    shows_runtime: bool = False


@dataclass(frozen=True)
class Row:
    """What became of one form: as it is (``raw``), and with trtnorm."""

    form: Form
    raw: str
    raw_kernels: int | None
    outcome: str
    kernels: int | None
    rules: tuple[str, ...]
    exit_code: int
    runtime: str = ""

    def markdown(self) -> str:
        counts = ("–" if count is None else str(count) for count in (self.raw_kernels, self.kernels))
        rules = ", ".join(f"`{rule}`" for rule in self.rules)
        before, after = counts
        runtime = f" {self.runtime} |" if self.runtime else ""
        return f"| {self.form.name} |{runtime} {self.raw} | {self.outcome}{': ' if rules else ''}{rules} | {before} → {after} |"


def run(form: Form, book: Book) -> Row:
    """Build ``form`` as it is and with trtnorm, each in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="trtnorm-forms-") as name:
        folder = Path(name)
        path = folder / "model.onnx"
        path.write_bytes(form.model.SerializeToString())
        raw, raw_kernels = _as_it_is(form, path, folder)
        runtime = _in_onnxruntime(form, path) if book.shows_runtime else ""
        return Row(form, raw, raw_kernels, *_with_trtnorm(form, path, folder), runtime)


def _in_onnxruntime(form: Form, path: Path) -> str:
    """What ONNX Runtime makes of the file."""
    kinds, known = model_inputs(form.model), _shapes(form)
    shapes = {name: known[name][1] if name in known else tuple(map(int, kind.shape or ())) for name, kind in kinds.items()}
    with OrtRunner(threads=1) as runner:
        try:
            outputs = runner.run(path, draw(np.random.default_rng(0), kinds, shapes))
        except RunFailed as error:
            return "no kernel" if "Could not find an implementation" in error.reason else "refuses"
    bad = any(not np.isfinite(value.astype(np.float64)).all() for value in outputs.values())
    return "runs, not a number" if bad else "runs"


def _shapes(form: Form) -> dict[str, ShapeTriple]:
    """The ranges of dynamic inputs; where the form has none, 2 for the batch and 64 for channels."""
    dynamic = {name: kind for name, kind in model_inputs(form.model).items() if not kind.is_static}
    sizes = {
        n: tuple(s if isinstance(s, int) else (64 if axis else 2) for axis, s in enumerate(k.shape or ()))
        for n, k in dynamic.items()
    }
    return {name: form.ranges.get(name, (shape, shape, shape)) for name, shape in sizes.items()}


def _as_it_is(form: Form, path: Path, folder: Path) -> tuple[str, int | None]:
    """What TensorRT makes of the file itself, and the kernels of the engine."""
    work = folder / "raw"
    work.mkdir()
    (work / "model.onnx").write_bytes(path.read_bytes())
    shapes = _shapes(form)
    request = BuildRequest("model.onnx", str(work / "raw.engine"), BACKEND, (shapes,) if shapes else ())
    result = launch(request, work, lambda event: None, Limits(120))
    if not result.ok:
        return f"refused: {_shortened(_telling([message.text for message in result.errors]))}", None
    return _judged(path, _profile(form, folder)), len(launched(result.kernels))


def _telling(messages: list[str]) -> str:
    """The line that says most, without what TensorRT puts around it; the first ones often only name the node."""
    told = [line for line in (_bare(line) for message in messages for line in message.splitlines()) if line]
    return next((line for line in told if re.search("count|support|must|same shape", line)), (told or ["no message"])[0])


def _bare(text: str) -> str:
    line = " ".join(text.split())
    line = re.sub(r"^Invalid Node - \S+ ?", "", line)
    line = re.sub(r"^(\S+: )?Error Code:? \d+:? ?(\([^)]*\) ?)?", "", line)
    line = re.sub(r"^API Usage Error \((.*) In \S+ at /\S+\)$", r"\1", line)
    line = re.sub(r"^Myelin \(\[\S+: \S+\] ?(.*)\)$", r"\1", line)
    return "" if "cudaError" in line else line


def _judged(path: Path, profile: Path | None) -> str:
    """How far the parsed network is from the model, in float64 and in ONNX Runtime."""
    settings = CompareSettings(find_blame=False, backend=BACKEND)
    try:
        comparison = compare(path, f"network:{path}", profile=profile, settings=settings)
    except TrtnormError as error:
        return f"builds; not comparable: {_shortened(error.summary)}"
    candidate = comparison.candidates[0]
    if candidate.error:
        return f"builds; not comparable: {_shortened(candidate.error)}"
    # As a function, and as it runs in its own types: a cast that overflows shows only there.
    worst = max(max(v.exact or 0.0, v.native_distance) for v in candidate.verdicts)
    return "builds" if worst < _WRONG else f"**builds, wrong by {worst:.2g}**"


def _with_trtnorm(form: Form, path: Path, folder: Path) -> tuple[str, int | None, tuple[str, ...], int]:
    profile = _profile(form, folder)
    try:
        engine, options = folder / "model.engine", BuildOptions(BACKEND, 120)
        manifest = build(path, engine, profile=profile, weights=_weights(form, folder), force=True, options=options)
    except TrtnormError as error:
        return f"refused (exit {error.exit_code}): {_shortened(_reason(error))}", None, (), error.exit_code
    kernels = manifest.network.launches
    warned = ", with a warning" if manifest.rewrite_warnings else ""
    return f"equal{warned}", kernels, tuple(dict.fromkeys(change.rule for change in manifest.changes)), 0


def _reason(error: TrtnormError) -> str:
    """The first thing said of the first node."""
    lines = [line.strip() for line in (error.where or "").splitlines()]
    return lines[1] if len(lines) > 1 else error.summary


def _profile(form: Form, folder: Path) -> Path | None:
    shapes = _shapes(form)
    if not form.profile and not shapes:
        return None
    inputs = {name: dict(zip(("min", "opt", "max"), map(list, shapes), strict=True)) for name, shapes in shapes.items()}
    profiles = f"optimization_profiles: {json.dumps([{'inputs': inputs}])}\n" if shapes else ""
    path = folder / "cfg.yaml"
    path.write_text(f"{profiles}{form.profile}\n")
    return path


def _weights(form: Form, folder: Path) -> Path | None:
    if not form.weights:
        return None
    from safetensors.numpy import save_file

    save_file(form.weights, folder / "weights.safetensors")
    return folder / "weights.safetensors"


def _shortened(text: str) -> str:
    """One line that fits a table's cell."""
    line = " ".join(re.sub(r"(Load model from )?/\S*/model\.onnx( failed:)?", "", text).split()).replace("|", "\\|")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


def page(book: Book, rows: Iterable[Row], versions: str) -> str:
    """The whole document."""
    runtime = ("- **ONNX Runtime**: whether it runs the file, or has no kernel for it on the CPU, or refuses it.",)
    names = ("form", *(["ONNX Runtime"] if book.shows_runtime else []), "as it is", "with trtnorm", "kernels")
    made = [
        f"# {book.title}",
        "",
        f"Generated by `python -m benchmarks.{book.module}`; do not edit. Each form is a small network, built twice for real:",
        f"as it is, and with `trtnorm build`. {versions}.",
        "",
        *(runtime if book.shows_runtime else ()),
        "- **as it is**: what TensorRT says, or whether the network that it parsed computes what the model computes (it is",
        "  evaluated layer by layer in float64; nothing was executed on a GPU).",
        "- **with trtnorm**: *equal* means that every change was proved and the network parsed from the result passed the",
        "  comparison with the original, or with the reading of it that was chosen; then the rules that were applied.",
        "- **kernels**: layers of the compiled engine that launch something, before → after.",
    ]
    section = ""
    for row in rows:
        if row.form.section != section:
            section = row.form.section
            made += ["", f"## {section}", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        made.append(row.markdown())
    return "\n".join(made) + "\n"


def _versions() -> str:
    from importlib import metadata

    names = ("tensorrt-rtx", "onnx", "onnxruntime")
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


def write(book: Book, arguments: list[str]) -> None:
    """Run the forms of ``book`` and write its page; with ``arguments``, print the rows whose names contain them."""
    rows = []
    for form in book.forms():
        if all(text in f"{form.section}: {form.name}" for text in arguments):
            rows.append(run(form, book))
            print(rows[-1].markdown(), file=sys.stderr, flush=True)
    if not arguments:
        book.path.write_text(page(book, rows, _versions()), encoding="utf-8")
