"""Every mistake in optimization profiles that TensorRT misreports or does not notice, and how to apply the printed fix."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import yaml

from tests.models import parse, random
from tests.shapes.shape_models import raft
from trtnorm_cli.errors import ProfileError

IMAGE = "g (float[N, 3, H, W] image) => (float[N, 3, H, W] y) { y = Relu(image) }"
PAIR = "g (float[N, 4] a, float[N, 4] b) => (float[N, 4] y) { y = Add(a, b) }"


@dataclass(frozen=True)
class Mistake:
    """A profile that is wrong in one way, and in words what TensorRT does with it."""

    name: str
    model: onnx.ModelProto
    text: str | None
    line: int | None
    message: str


def image(low: str, opt: str, high: str) -> str:
    return f"optimization_profiles:\n  - inputs:\n      image: {{min: {low}, opt: {opt}, max: {high}}}\n"


def _broadcast() -> onnx.ModelProto:
    return parse("g (float[N, H] a, float[N, K] b) => (float[N, H] y) { y = Add(a, b) }")


def _kernel() -> onnx.ModelProto:
    body = "g (float[N, 3, H, W] image) => (float[N, 4, ?, ?] y) { [wide] y = Conv(image, w) }"
    return parse(body, {"w": random(4, 3, 9, 9)})


def _elements() -> onnx.ModelProto:
    return parse("g (float[N, 6] x, int64[2] shape) => (float[?, ?] y) { y = Reshape(x, shape) }")


def _flat() -> onnx.ModelProto:
    return parse("g (float[N, 4, 6] x) => (float[N, ?] y) { y = Reshape(x, t) }", {"t": np.array([0, -1])})


DIMS = "dims:\n  N: {min: 1, opt: 1, max: 2}\n"
FIXED = "  H: 9\n  W: 9\n"
ONE = image("1x3x9x9", "1x3x9x9", "2x3x9x9")
SECOND = "  - inputs:\n      image: {min: 4x3x9x9, opt: 2x3x9x9, max: 8x3x9x9}\n"
A = "optimization_profiles:\n  - inputs:\n      a: {min: 1x4, opt: 2x4, max: 4x4}\n"
OTHER_NAME = PAIR.replace("[N, 4] b", "[M, 4] b")


def ranges(**corners: str) -> str:
    """Lines under ``dims``: ``H="4 8 16"``."""
    lines = [f"  {name}: {{min: {v[0]}, opt: {v[1]}, max: {v[2]}}}" for name, v in ((n, c.split()) for n, c in corners.items())]
    return "\n".join(lines) + "\n"


RAFT_RULE = "H must be ≡ 0 (mod 8) and at least 16: 135 → 136, 540 → 536 or 544, 2156 → 2152 or 2160"
MISTAKES = (
    Mistake("min above max", parse(IMAGE), image("8x3x64x64", "8x3x64x64", "4x3x64x64"), 3, "8 is above max 4"),
    Mistake("opt above max", parse(IMAGE), image("1x3x64x64", "8x3x64x64", "4x3x64x64"), 3, "8 is above max 4"),
    Mistake("opt below min", parse(IMAGE), image("4x3x64x64", "1x3x64x64", "8x3x64x64"), 3, "1 is below min 4"),
    Mistake("opt of a dimension above max", parse(IMAGE), f"dims:\n{ranges(N='1 8 4')}{FIXED}", 2, "8 is above max 4"),
    Mistake("opt of zero", parse(IMAGE), f"dims:\n{ranges(N='0 0 4')}{FIXED}", 2, "0 is not allowed here"),
    Mistake("mixed ranks", parse(IMAGE), image("1x3x64x64", "[3, 64, 64]", "4x3x64x64"), 3, "opt has 3 dimensions"),
    Mistake("another rank than the tensor", parse(IMAGE), image("3x64x64", "3x64x64", "3x64x64"), 3, "has 3 dimensions but"),
    Mistake("a size that the model fixes", parse(IMAGE), image("1x4x9x9", "1x4x9x9", "2x4x9x9"), 3, "fixes dimension 1 to 3"),
    Mistake("a misspelled input", parse(IMAGE), ONE.replace("image", "imgae"), 3, "did you mean 'image'"),
    Mistake("an input that is not there", parse(IMAGE), ONE + "      mask: 1x1x9x9\n", 4, "no input 'mask'"),
    Mistake("a misspelled dimension", parse(IMAGE), "dims:\n  N: 1\n  H: 9\n  w: 9\n", 4, "did you mean 'W'"),
    Mistake("an input without shapes", parse(OTHER_NAME), "dims:\n  N: 8\n", 1, "no values for M"),
    Mistake("no profile", parse(IMAGE), None, None, "no build profile was given"),
    Mistake("a profile without shapes", raft(), "rules: {skip: []}\n", None, "the build profile gives no shapes"),
    Mistake("a bad second profile", parse(IMAGE), ONE + SECOND, 5, "2 is below min 4"),
    Mistake("one name, two values", parse(PAIR), A + "      b: {min: 2x4, opt: 2x4, max: 4x4}\n", 4, "N is 2 here but 1 in"),
    Mistake("one name, two maxima", parse(PAIR), A + "      b: {min: 1x4, opt: 2x4, max: 8x4}\n", 4, "N is 8 here but 4 in"),
    Mistake("a broadcast that fails at opt", _broadcast(), DIMS + ranges(H="4 8 8", K="4 6 8"), 3, "H = 8 and K = 6 do not"),
    Mistake("a broadcast that fails at max", _broadcast(), DIMS + ranges(H="4 8 8", K="4 8 16"), 3, "at node -> y (Add)"),
    Mistake("min smaller than the kernel", _kernel(), DIMS + ranges(H="5 16 32", W="9 9 9"), 3, "at node wide (Conv)"),
    Mistake("sizes that must be multiples", raft(), DIMS + ranges(H="135 540 2156", W="135 960 3840"), 3, RAFT_RULE),
    Mistake("a min of zero", _flat(), "dims:\n" + ranges(N="0 1 4"), 2, "must not be 0, or what -1 stands for"),
    Mistake("no multiples of what they should be", parse(IMAGE),
            "dims:\n  N: 1\n  H: {min: 60, opt: 64, max: 100, multiple_of: 8}\n  W: 9\n", 3, "60 is not a multiple of 8"),
    Mistake("no elements of a shape tensor", _elements(), DIMS, None, "the elements of the input shape decide sizes"),
    Mistake("elements that do not fit", _elements(),
            DIMS + "values:\n  shape: {min: [1, 6], opt: [1, 6], max: [2, 7]}\n", 2, "must satisfy 6*N == "),
    Mistake("more memory than there is", parse(IMAGE), DIMS + ranges(H="8 64 100000", W="8 64 100000"), 1, "allowed are 80.0"),
)  # fmt: skip


def repaired(text: str | None, error: ProfileError) -> str:
    """The profile with the fix that ``error`` prints, applied as it says and no further."""
    hint = error.hint or ""
    pasted = re.findall(r"^  (\S.*?)  # (\S+), line \d+$", hint, re.M)
    if pasted:
        tree = yaml.safe_load(text or "")
        for line, path in pasted:
            (value,) = yaml.safe_load(line).values()
            _put(tree, path, value)
        return yaml.safe_dump(tree, sort_keys=False)
    if (added := re.search(r"^(?:add|save) .*?:\n+(.*)", hint, re.M | re.S)) is not None:
        return _with_lines(text or "", hint, added[1])
    place = (error.where or "").split(": ", 1)[1]
    tree = yaml.safe_load(text or "")
    if (entry := re.search(r"write (\{min: .*?\})", hint)) is not None:
        _put(tree, re.sub(r"\.(min|opt|max)(\[\d+\])?$", "", place), yaml.safe_load(entry[1]))
    elif (limit := re.search(r"write (max_memory): (\w+)", hint)) is not None:
        tree[limit[1]] = limit[2]
    elif (name := re.search(r"write (\w+) instead", hint)) is not None:
        parent, key = _parent(tree, place)
        parent[name[1]] = parent.pop(key)
    elif hint.startswith("leave it out"):
        parent, key = _parent(tree, place)
        del parent[key]
    else:
        number = re.search(r"write (\d+)", hint)
        assert number is not None, hint
        _put(tree, place, int(number[1]))
    return yaml.safe_dump(tree, sort_keys=False)


def _with_lines(text: str, hint: str, lines: str) -> str:
    if not hint.startswith("add under "):
        return text + lines + "\n"
    tree = yaml.safe_load(text)
    parent, key = _parent(tree, hint.removeprefix("add under ").split(" and adjust")[0])
    parent[key].update(yaml.safe_load(lines))
    return yaml.safe_dump(tree, sort_keys=False)


def _parent(tree: Any, path: str) -> tuple[Any, Any]:
    found = re.findall(r"\[(\d+)\]|(\w+)", path)
    keys: list[Any] = [int(index) if index else name for index, name in found]
    for key in keys[:-1]:
        tree = tree[key]
    return tree, keys[-1]


def _put(tree: Any, path: str, value: Any) -> None:
    parent, key = _parent(tree, path)
    parent[key] = value
