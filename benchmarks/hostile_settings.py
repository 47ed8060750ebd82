"""Build profiles and files of weights that exhaust, lead elsewhere, or run code."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.hostile_cases import Case, save, sound_model

PROFILES, WEIGHTS = "build profiles", "files of weights"
MARK = "marked"
_PROFILE = "cfg.yaml"
_INPUT = "optimization_profiles:\n  - inputs:\n      x: {min: [1, 4, 6, 6], opt: [1, 4, 6, 6], max: [1, 4, 6, 6]}\n"
_NOT_FITTING = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w)
    y = BatchNormalization(a, g1, g1, g1, g1)
}"""


def _profile(
    name: str, text: str | bytes, prepare: Callable[[Path], object] = lambda folder: None, is_sound: bool = False
) -> Case:
    def write(folder: Path) -> None:
        save(sound_model(), folder)
        (folder / _PROFILE).write_bytes(text if isinstance(text, bytes) else text.encode())
        prepare(folder)

    return Case(PROFILES, name, write, is_sound, ("--profile", _PROFILE))


def _instead(make: Callable[[Path], object]) -> Callable[[Path], object]:
    """Puts something else where the profile is."""

    def prepare(folder: Path) -> None:
        (folder / _PROFILE).unlink()
        make(folder / _PROFILE)

    return prepare


def _bomb() -> str:
    """Aliases of aliases: nine to the power of ten values."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join(lines) + "\n" + _INPUT


def _merges() -> str:
    lines = ["m0: &m0 {k: 1}"]
    lines += [f"m{i}: &m{i}\n  <<: [{', '.join([f'*m{i - 1}'] * 9)}]" for i in range(1, 10)]
    return "\n".join(lines) + "\n" + _INPUT


def _sizes(text: str) -> str:
    return _INPUT.replace("opt: [1,", f"opt: [{text},")


def _profile_cases() -> Iterator[Case]:
    yield _profile("a profile that fits", _INPUT, is_sound=True)
    yield _profile("aliases of aliases", _bomb())
    yield _profile("merges of merges", _merges())
    yield _profile("an alias in its own value", "a: &a [*a]\n" + _INPUT)
    yield _profile("a merge of itself", "a: &a\n  <<: *a\n" + _INPUT)
    yield _profile("100,000 brackets", "[" * 100_000)
    yield _profile("lists 900 deep", "a: " + "[" * 900 + "]" * 900 + "\n" + _INPUT)
    yield _profile("100,000 indentations", "".join(" " * (i % 100) + "- \n" for i in range(5000)))
    yield _profile("a list of 10^5 numbers", "a: [" + "1," * 100_000 + "]\n" + _INPUT)
    yield _profile("100 MB", _INPUT, _instead(lambda p: p.write_bytes(b"a: 1\n" * 20_000_000)))
    yield _profile(
        "a hole of 10^10 bytes", _INPUT, _instead(lambda p: os.truncate(os.open(p, os.O_CREAT | os.O_WRONLY), 10**10))
    )
    yield _profile("a pipe", _INPUT, _instead(os.mkfifo))
    yield _profile("a device", _INPUT, _instead(lambda p: p.symlink_to("/dev/zero")))
    yield _profile("an object of Python", "a: !!python/object/apply:os.system ['touch marked']\n" + _INPUT)
    yield _profile("a module of Python", "a: !!python/module:os\n" + _INPUT)
    yield _profile("a number of 5000 digits", _sizes("9" * 5000))
    yield _profile("a size of 2^63", _sizes(str(1 << 63)))
    yield _profile("a size of 10^18", _INPUT.replace("[1, 4", "[1000000000000000000, 4"))
    yield _profile("a negative size", _sizes("-1"))
    yield _profile("a size of infinity", _sizes(".inf"))
    yield _profile("a formula of powers", _INPUT + "dims:\n  N: 9**9**9**9\n")
    yield _profile("a formula that calls", _INPUT + "dims:\n  N: \"__import__('os').system('touch marked')\"\n")
    yield _profile("a formula of 5000 brackets", _INPUT + 'dims:\n  N: "' + "(" * 5000 + '"\n')
    yield _profile("a range of 10^18 sizes", _INPUT + "dims:\n  N: {min: 1, opt: 1, max: 1000000000000000000}\n")
    yield _profile("1000 optimization profiles", _INPUT + _INPUT.split("\n", 1)[1] * 999)
    yield _profile("a library that is not there", _INPUT + "plugins: [nowhere.so]\n")
    yield _profile("a library that is no library", _INPUT + "plugins: [cfg.yaml]\n")
    yield _profile("a library by its name alone", _INPUT + "plugins: [libc.so.6]\n")
    yield _profile("keys with escapes and markup", _INPUT + '"\\e]0;owned\\a[/red][bold]": 1\n')
    yield _profile("zero bytes", _INPUT.encode() + b"\0")
    yield _profile("surrogates", _INPUT.encode() + b"a: \xed\xa0\x80\n")


class _Marks:
    """Leaves a file where it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, (MARK,)


def _weights(name: str, file: str, content: Callable[[Path], bytes], is_sound: bool = False) -> Case:
    def write(folder: Path) -> None:
        model = sound_model(_NOT_FITTING)
        model.graph.initializer.append(_two_values())
        save(model, folder)
        (folder / file).write_bytes(content(folder))

    return Case(WEIGHTS, name, write, is_sound, ("--weights", file))


def _two_values() -> object:
    import numpy as np
    from onnx import numpy_helper

    return numpy_helper.from_array(np.ones(2, np.float32), "g1")


def _safetensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def _weight_cases() -> Iterator[Case]:
    one = {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}
    yield _weights("a pickle that runs code", "w.pt", lambda f: pickle.dumps({"g1": _Marks()}))
    yield _weights("a pickle cut off", "w.pt", lambda f: pickle.dumps({"g1": [1.0] * 100})[:50])
    yield _weights("a checkpoint that is noise", "w.pt", lambda f: os.urandom(5000))
    yield _weights("an archive that is none", "w.pt", lambda f: b"PK\x03\x04" + bytes(100))
    yield _weights("a header of 2^63 bytes", "w.safetensors", lambda f: struct.pack("<Q", 1 << 63) + b"{}")
    yield _weights("a header of 99 MB of nothing", "w.safetensors", lambda f: struct.pack("<Q", 99_000_000) + b" " * 99_000_000)
    yield _weights("a header 10^5 lists deep", "w.safetensors", lambda f: _safetensors(b"[" * 100_000))
    yield _weights(
        "data beyond the end", "w.safetensors", lambda f: _safetensors({"g1": {**one, "data_offsets": [0, 1 << 40]}}, bytes(16))
    )
    yield _weights(
        "data before the beginning",
        "w.safetensors",
        lambda f: _safetensors({"g1": {**one, "data_offsets": [-16, 0]}}, bytes(16)),
    )
    yield _weights("a shape of 2^40", "w.safetensors", lambda f: _safetensors({"g1": {**one, "shape": [1 << 40]}}, bytes(16)))
    yield _weights("overlapping data", "w.safetensors", lambda f: _safetensors({"g1": one, "g2": one}, bytes(16)))
    yield _weights("an unknown type", "w.safetensors", lambda f: _safetensors({"g1": {**one, "dtype": "Q999"}}, bytes(16)))
    index = {"weight_map": {"g1": "../secret.bin"}}
    yield _weights("an index that leads outside", "w.safetensors.index.json", lambda f: json.dumps(index).encode())
    absolute = {"weight_map": {"g1": "/etc/passwd"}}
    yield _weights("an index with an absolute path", "w.safetensors.index.json", lambda f: json.dumps(absolute).encode())
    yield _weights("an index that is a list", "w.safetensors.index.json", lambda f: b"[1, 2]")
    yield _weights("an index 10^5 lists deep", "w.safetensors.index.json", lambda f: b"[" * 100_000)
    yield _weights("an index of numbers", "w.safetensors.index.json", lambda f: b'{"weight_map": {"g1": 5}}')


def cases() -> Iterator[Case]:
    """All of these two families."""
    yield from _profile_cases()
    yield from _weight_cases()
