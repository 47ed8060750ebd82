"""docs/precision_tools.md from what precision_tools.py found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

TOOLS = ("blind", "onnxconverter-common", "autocast", "autocast with data", "trtnorm")
_BUDGET = {"fp16": 1e-2, "bf16": 5e-2}
_TITLES = {"fp16": "Half precision", "bf16": "bfloat16"}

HEAD = """# Half precision and bfloat16, by trtnorm and by other tools

What TensorRT's network of each result computes, evaluated on the CPU with each layer's output rounded to its type, beside the
float32 model in ONNX Runtime: the largest relative L2 error of an output. The first number is for random inputs, which
trtnorm and "autocast with data" were calibrated on. The second is the worst of inputs that nobody was calibrated on: images
of 0 to 255, a constant row, a fully masked row. "inf" means that a result is infinite or NaN where the model's is not, "no
result" that the tool ended with an error, "refused" that TensorRT's parser refuses the result, "not run" that its network does
not run in ONNX Runtime, "-" that it was not measured. Nothing ran on a GPU.

Seconds are of two processor cores that did other work as well, so that only their order of size says something. An engine holds
the code of kernels beside weights, which is most of a small one. trtnorm makes the changes that a build makes: those that cost
no time by the estimate.
[precision.md](precision.md#where-a-conversion-falls-short) says why some rows miss.

"planted" models have ranges 300 times as wide in front of some norms, which changes nothing in float32. "blind" casts
everything; "autocast" is NVIDIA ModelOpt's AutoCast as it is, and with the random inputs as calibration data. Made by
`benchmarks/precision_tools.py`, with tensorrt-rtx 1.7.1.116, onnxconverter-common 1.16.0 and nvidia-modelopt 0.47.0.
"""


def merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What several measurements found, the later ones last."""
    found: dict[str, dict[str, Any]] = {}
    for part in parts:
        for name, rows in part.items():
            found.setdefault(name, {}).update(rows)
    return {name: rows for name, rows in found.items() if len(rows) > 1}


def page(found: Mapping[str, Any]) -> str:
    """The page: for each type the errors, then kernels, casts, bytes and seconds."""
    parts = [HEAD]
    for kind, title in _TITLES.items():
        tools = [tool for tool in TOOLS if any(f"{tool} {kind}" in rows for rows in found.values())]
        parts += [f"## {title}\n", _summary(found, tools, kind), _table(found, tools, kind, _errors), ""]
        parts += [
            "Kernels that the engine launches (those of the float32 model first), and in brackets casts and islands of float32 "
            "nodes in the file:\n",
            _table(found, tools, kind, _kernels, with_float32=True),
            "",
            "Bytes relative to those of the float32 model's engine: of the engine, of its weights alone, and of the rest, "
            "which is code, with its share of the engine in brackets. Seconds of the conversion:\n",
            _table(found, tools, kind, _bytes),
            "",
        ]
        if kind == "fp16":
            parts += [
                "The file in ONNX Runtime on the CPU, which has kernels for half and computes them in float32: the error for "
                "the random inputs. For bfloat16 it lacks most kernels.\n",
                _table(found, tools, kind, _in_onnxruntime),
                "",
            ]
    return "\n".join(parts)


def _summary(found: Mapping[str, Any], tools: list[str], kind: str) -> str:
    lines = []
    for tool in tools:
        rows = [rows[f"{tool} {kind}"] for rows in found.values() if f"{tool} {kind}" in rows]
        good = sum(_worst(row) <= _BUDGET[kind] for row in rows)
        lines.append(f"- {tool}: {good} of {len(rows)} within {_BUDGET[kind]:g} on all inputs")
    pairs = list(_kernels_beside_autocast(found, kind))
    fewer, more = (sum(test) for test in ([a < b for a, b in pairs], [a > b for a, b in pairs]))
    if pairs:
        lines.append(
            f"- kernels of trtnorm beside the fewest of AutoCast's: fewer in {fewer}, as many in {len(pairs) - fewer - more}, "
            f"more in {more} of {len(pairs)}"
        )
    return "\n".join(lines) + "\n"


def _kernels_beside_autocast(found: Mapping[str, Any], kind: str) -> Iterator[tuple[int, int]]:
    for rows in found.values():
        own = rows.get(f"trtnorm {kind}", {}).get("kernels")
        others = [row["kernels"] for key, row in rows.items() if key.endswith(kind) and "autocast" in key and "kernels" in row]
        if own is not None and others:
            yield own, min(others)


def _worst(row: Mapping[str, Any]) -> float:
    errors = row.get("errors", {})
    return max((value if isinstance(value, float | int) else math.inf for value in errors.values()), default=math.inf)


def _table(found: Mapping[str, Any], tools: list[str], kind: str, cell: Any, with_float32: bool = False) -> str:
    extra = ["float32"] if with_float32 else []
    lines = [f"| model | {' | '.join([*extra, *tools])} |", "|---" * (1 + len(extra) + len(tools)) + "|"]
    for name, rows in found.items():
        cells = [str(rows["float32"].get("kernels", "-"))] if with_float32 else []
        cells += [cell(rows[key], rows["float32"]) if (key := f"{tool} {kind}") in rows else "-" for tool in tools]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _errors(row: Mapping[str, Any], float32: Mapping[str, Any]) -> str:
    if "failed" in row:
        return "no result"
    return " / ".join(_numbers(row.get("errors", {})))


def _numbers(errors: Mapping[str, Any]) -> Iterator[str]:
    if "network" in errors:
        yield "refused"
        return
    yield _number(errors.get("random"))
    others = [value for key, value in errors.items() if key != "random"]
    if others:
        yield "not run" if any(isinstance(value, str) for value in others) else _number(max(others))


def _number(value: float | str | None) -> str:
    if value is None or isinstance(value, str):
        return "not run"
    return f"{value:.0e}" if math.isfinite(value) else "inf"


def _kernels(row: Mapping[str, Any], float32: Mapping[str, Any]) -> str:
    return "-" if "kernels" not in row else f"{row['kernels']} ({row['casts']}, {row.get('islands', '?')})"


def _bytes(row: Mapping[str, Any], float32: Mapping[str, Any]) -> str:
    if "engine_bytes" not in row or "engine_bytes" not in float32:
        return "-"
    engine, whole = row["engine_bytes"], float32["engine_bytes"]
    weights, all_weights = row["weight_bytes"], float32["weight_bytes"]
    code = f"{(engine - weights) / (whole - all_weights):.0%} ({(engine - weights) / engine:.0%})"
    return f"{engine / whole:.0%}: {weights / all_weights:.0%}, {code}; {row['seconds']:.0f} s"


def _in_onnxruntime(row: Mapping[str, Any], float32: Mapping[str, Any]) -> str:
    error = row.get("onnxruntime")
    if error is None:
        return "no result" if "failed" in row else "-"
    return "does not run" if isinstance(error, str) else _number(error)
