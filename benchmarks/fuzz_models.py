"""Mutate sound models field by field, and see that reading, cleaning and planning each ends in a result or a clear error.

python -m benchmarks.fuzz_models --seconds 7200 --seed 0
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx

from benchmarks.hostile_cases import sound_model
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.rewrite.describe import describe_model

# Models are mutated in a child, some at a time: a native crash names the seed that it comes from.
_AT_ONCE = 25
_MOST_BYTES, _MOST_SECONDS = 4 << 30, 120
_NUMBERS = (0, 1, -1, 2, 7, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63), 1 << 40)
_REALS = (0.0, -1.0, 1e-45, 3e38, float("inf"), float("nan"))
_TEXTS = ("", "x", "y", "w", "gamma", "b", "Relu", "Loop", "nowhere", "\x00", "\x1b[2J", "é" * 300, "../w")

_GRAPHS = (
    """g (float[N,4,6,6] x) => (float[N,4,6,6] y) {
        a = Conv<pads = [1, 1, 1, 1]>(x, w) b = BatchNormalization(a, gamma, beta, mu, var) c = Relu(b) y = Add(c, x)
    }""",
    """g (float[N,4,6,6] x) => (float[N,4,6,6] y) {
        s = Shape(x) i = Constant<value = int64[1] {0}>() n = Gather(s, i) r = Constant<value = int64[3] {4, 6, 6}>()
        t = Concat<axis = 0>(n, r) a = InstanceNormalization(x, gamma, beta) y = Reshape(a, t)
    }""",
    """g (float[2,3,4] x) => (float[2,3,4] y) {
        m = ReduceMean<axes = [-1]>(x) d = Sub(x, m) e = Mul(d, d) v = ReduceMean<axes = [-1]>(e)
        p = Constant<value = float {0.00001}>() q = Add(v, p) s = Sqrt(q) n = Div(d, s) g = Mul(n, gamma) y = Add(g, beta)
    }""",
)


def mutated(seed: int) -> onnx.ModelProto:
    """A sound model with one to four fields changed."""
    draw = random.Random(seed)
    model = sound_model(draw.choice(_GRAPHS))
    for _ in range(draw.randint(1, 4)):
        _mutate(draw, model)
    return model


def _mutate(draw: random.Random, model: onnx.ModelProto) -> None:
    fields = [pair for pair in _fields(model) if pair[1].name != "raw_data" or draw.random() < 0.1]
    if not fields:  # an earlier change may leave nothing
        return
    message, field = draw.choice(fields)
    if field.is_repeated:
        _mutate_list(draw, getattr(message, field.name), field)
    elif field.type == field.TYPE_MESSAGE or draw.random() < 0.2:
        message.ClearField(field.name)
    else:
        setattr(message, field.name, _value(draw, field, getattr(message, field.name)))


def _mutate_list(draw: random.Random, values: Any, field: Any) -> None:
    place = draw.randrange(len(values)) if values else 0
    way = draw.choice(("drop", "again", "change", "clear", "swap"))
    if way == "clear" or not values:
        del values[:]
    elif way == "drop":
        del values[place]
    elif way == "again":
        values.append(values[place])
    elif field.type != field.TYPE_MESSAGE:
        values[place] = _value(draw, field, values[place])
    elif way == "swap":
        values[place].CopyFrom(values[draw.randrange(len(values))])


def _value(draw: random.Random, field: Any, held: object) -> object:
    if isinstance(held, bool):
        return not held
    if isinstance(held, float):
        return draw.choice(_REALS)
    if isinstance(held, str):
        return draw.choice(_TEXTS)
    if isinstance(held, bytes):
        return held[: draw.randrange(len(held) + 1)]
    fits = 31 if field.type in (field.TYPE_INT32, field.TYPE_UINT32, field.TYPE_ENUM) else 63
    numbers = [number for number in _NUMBERS if -(1 << fits) <= number < 1 << fits]
    if field.type == field.TYPE_ENUM:
        numbers = [each.number for each in field.enum_type.values]
    return draw.choice([number for number in numbers if number >= 0 or field.type != field.TYPE_UINT64])


def _fields(message: Any) -> Iterator[tuple[Any, Any]]:
    """Every field that is set, in ``message`` and in what it holds."""
    for field, value in message.ListFields():
        yield message, field
        for inner in (value if field.is_repeated else [value]) if field.type == field.TYPE_MESSAGE else ():
            yield from _fields(inner)


def problem(model: onnx.ModelProto, folder: Path) -> str:
    """The traceback of what is no clear error; empty where reading and planning end well."""
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    try:
        describe_model(path)
        load_model(path).require_unchanged()
    except TrtnormError as error:
        return "" if error.summary else "an error without a word"
    except Exception:
        return traceback.format_exc()
    return ""


def _batch(seeds: range, report: Callable[[int, str], object]) -> None:
    """Try ``seeds`` in a child with limits."""
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_BYTES, _MOST_BYTES))
        with tempfile.TemporaryDirectory(prefix="trtnorm-fuzz-") as name:
            for seed in seeds:
                resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + _MOST_SECONDS,) * 2)
                Path(name, "seed").write_text(str(seed))
                if found := problem(mutated(seed), Path(name)):
                    report(seed, found)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if status:
        report(
            seeds.start,
            f"the process of seeds {seeds.start} to {seeds.stop - 1} ended with {os.waitstatus_to_exitcode(status)}",
        )


def main() -> None:
    """Mutate until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=7200)
    parser.add_argument("--seed", type=int, default=0, help="the first of the seeds, which are counted up")
    parser.add_argument("-o", "--output", type=Path, help="write how much was tried and found to this file")
    arguments = parser.parse_args()
    begun, seed = time.monotonic(), arguments.seed
    finds: list[str] = []

    def report(number: int, text: str) -> None:
        print(f"seed {number}:\n{text}", flush=True)
        finds.append(f"seed {number}: {text.strip().splitlines()[-1]}")

    while time.monotonic() - begun < arguments.seconds:
        _batch(range(seed, seed + _AT_ONCE), report)
        seed += _AT_ONCE
        if arguments.output is not None:
            tried = {"executions": seed - arguments.seed, "seconds": round(time.monotonic() - begun), "finds": finds}
            arguments.output.write_text(json.dumps(tried, indent=1) + "\n", encoding="utf-8")
    print(f"{seed - arguments.seed} models in {time.monotonic() - begun:.0f} s")
    sys.exit(1 if finds else 0)


if __name__ == "__main__":
    main()
