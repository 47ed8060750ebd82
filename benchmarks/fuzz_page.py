"""The page of fuzzing: what was generated, by whom it was judged, and what was found."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_HEAD = """# Fuzzing

Models that nobody wrote, and what became of them. `make fuzz` makes them for hours and writes this page
(`benchmarks/fuzz_*.py`, `benchmarks/random_models/`); `tests/test_fuzz_graphs.py` and `tests/test_fuzz_models.py` take a few
in every run of the tests. A find is reduced, mended, and becomes a test.

- **Random graphs** (hypothesis): valid models of one to six steps around normalizations, ONNX's own, ONNX Runtime's and in
  pieces, with convolutions, products, layouts, pooling, residuals, If, Loop, local functions, open sizes, Q/DQ, four types
  and nine opsets. The judges of each: ONNX Runtime against the evaluation in float64, sizes by rules against those of the run,
  the rewriting under `optimize: always`, `never` and `kernels` against the model in float64, a second pass that must
  find nothing, and TensorRT's network of the rewriting against the model. How far rounded constants move a result is measured
  on each model.
- **Mutated models**: sound models with one to four fields changed, which must be read, cleaned and planned, or refused with
  one clear error.
- **Bytes** (atheris, guided by coverage): the YAML of build profiles, and ONNX files. The reader that leaves weights in the
  file must read what protobuf reads.

"""
_WITHOUT_SIZES = (
    "ONNX infers nothing of a GroupNormalization, so that the first pass knew no sizes behind it and took nothing there;"
    " mended, with a test"
)
_KNOWN = {
    **{
        f"a second pass changes more: {rule}": _WITHOUT_SIZES
        for rule in (
            "batchnorm-batch-statistics",
            "batchnorm-runtime-parameters",
            "batchnorm-to-scale-shift",
            "fold-batchnorm-conv-transpose",
            "fold-batchnorm-upstream",
            "groupnorm-one-group",
        )
    },
    "a second pass changes more: fold-scale-shift-upstream": (
        "as above, and in 27 of them the reshape behind a rewritten GroupNormalization told nobody the number of channels;"
        " mended, with tests"
    ),
    "a change is undone: activated-product-in-rows": (
        "a sum of two products was taken for one with a bias; mended, with a test"
    ),
    "float64 against ONNX Runtime: another value": (
        "ONNX Runtime gives NaN for a MeanVarianceNormalization of what is constant, and the lowest number for the greatest of"
        " NaN; the judge leaves both out now"
    ),
    "rewriting, optimize: always: another value": (
        "the condition of an If hung on rounding; the judge moves constants more often now before it calls something a find"
    ),
    "a second pass changes more: normalization-in-rows": (
        "the number of channels was not known to the first pass, and was when its result was read again; it is known now that"
        " sizes are followed through replacements"
    ),
}
_JUDGES = (
    "float64 against ONNX Runtime",
    "sizes",
    "rewriting, optimize: always",
    "rewriting, optimize: never",
    "rewriting, optimize: kernels",
    "a second pass",
    "TensorRT's network of the rewriting",
)


def page(folder: Path) -> str:
    """The page, from the records in ``folder``."""
    parts = [_HEAD]
    if graphs := _record(folder / "graphs.json"):
        parts.append(_graphs(graphs))
    rows = []
    for name, label in (("mutated", "mutated models"), ("yaml", "bytes of profiles"), ("onnx", "bytes of models")):
        if found := _record(folder / f"{name}.json"):
            rows.append(f"| {label} | {found['executions']} | {found['seconds'] / 60:.0f} | {len(found['finds'])} |")
            rows += [f"\n- {text}" for text in found["finds"]]
    if rows:
        parts.append("## Mutations and bytes\n\n| of | tried | minutes | finds |\n|---|---|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def _record(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _graphs(record: Mapping[str, Any]) -> str:
    counted = record["counted"]
    minutes, made, judged = record["seconds"] / 60, counted.get("executions", 0), counted.get("models", 0)
    lines = [
        "## Random graphs",
        "",
        f"{made} models in {minutes:.0f} minutes on a busy machine. {judged} of them say something, at one or two sizes of the",
        "inputs.",
        "",
        "| judge | times |",
        "|---|---|",
        *(f"| {name} | {counted.get(name, 0)} |" for name in _JUDGES),
        "",
    ]
    rules = sorted(key.removeprefix("rule ") for key, times in counted.items() if key.startswith("rule ") and times)
    lines += [*textwrap.wrap(f"Rules that changed one of them: {', '.join(rules)}.", 120, break_on_hyphens=False), ""]
    finds = {key.removeprefix("find: "): times for key, times in counted.items() if key.startswith("find: ")}
    lines += ["### Finds", ""]
    told = [f"- {name} ({times} models). {_KNOWN.get(name, 'Not looked into yet')}." for name, times in sorted(finds.items())]
    lines += told or ["None in this run."]
    rest = [key for key in counted if re.match("not judged|TensorRT refuses|refused|not translated|batches out", key)]
    lines += ["", "### Not judged, or not by all", ""]
    lines += [f"- {counted[key]} × {_escaped(key)}" for key in sorted(rest)]
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("<", "&lt;").replace("|", "\\|").replace("_", "\\_")
