"""Engines written in pieces or as a whole, and disks that do not take them."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.models import batchnorm, parse, random
from tests.tensorrt.builds import built
from trtnorm_cli.files import part_of
from trtnorm_cli.tensorrt.child.engine_output import write_engine

PIECES = (b"one ", b"two ", b"three")


class StreamWriter:
    """Stands for ``trt.IStreamWriter``."""


class Builder:
    """Hands its engine on in pieces, until one is not taken as a whole, or gives it as a whole."""

    def __init__(self, builds: bool = True) -> None:
        self.builds, self.taken = builds, list[int]()

    def build_serialized_network_to_stream(self, network: Any, config: Any, writer: Any) -> bool:
        for piece in PIECES:
            self.taken.append(writer.write(piece))
        return self.builds and self.taken == [len(piece) for piece in PIECES]

    def build_serialized_network(self, network: Any, config: Any) -> bytes | None:
        return b"".join(PIECES) if self.builds else None


def backend(in_pieces: bool) -> Any:
    return SimpleNamespace(
        can=lambda name: {"engine in pieces": in_pieces}[name], trt=SimpleNamespace(IStreamWriter=StreamWriter)
    )


@pytest.mark.parametrize("in_pieces", [True, False])
def test_the_file_is_the_engine(tmp_path: Path, in_pieces: bool) -> None:
    assert write_engine(Builder(), None, None, backend(in_pieces), tmp_path / "a.engine")
    assert (tmp_path / "a.engine").read_bytes() == b"one two three"
    assert [path.name for path in tmp_path.iterdir()] == ["a.engine"]


def test_what_a_killed_process_left_is_not_written_into(tmp_path: Path) -> None:
    """Whoever reads it while it is written would take what was left for the begin of the engine."""
    left = part_of(tmp_path / "a.engine")
    left.write_bytes(b"another engine")
    with left.open("rb") as reader:
        assert write_engine(Builder(), None, None, backend(True), tmp_path / "a.engine")
        assert reader.read() == b"another engine"
    assert (tmp_path / "a.engine").read_bytes() == b"one two three"


@pytest.mark.parametrize("in_pieces", [True, False])
def test_nothing_is_left_of_an_engine_that_was_refused(tmp_path: Path, in_pieces: bool) -> None:
    assert not write_engine(Builder(builds=False), None, None, backend(in_pieces), tmp_path / "a.engine")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("in_pieces", [True, False])
def test_a_full_disk_is_an_error_of_the_disk(tmp_path: Path, in_pieces: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    class Full:
        """A file that takes one piece."""

        def __init__(self, path: Path) -> None:
            self.file, self.room = real(path, "wb"), len(PIECES[0])

        def write(self, data: bytes) -> int:
            if len(data) > self.room:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.room -= len(data)
            return self.file.write(data)

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *exception: object) -> None:
            self.file.close()

    monkeypatch.setattr(Path, "open", lambda path, mode: Full(path))
    builder = Builder()
    with pytest.raises(OSError, match="No space left"):
        write_engine(builder, None, None, backend(in_pieces), tmp_path / "a.engine")
    assert list(tmp_path.iterdir()) == []
    assert builder.taken == ([4, 0, 0] if in_pieces else []), "what follows is not written behind a gap"


@pytest.mark.rtx
def test_pieces_make_the_same_engine_as_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process both have to take the same way, so that a child is made to take the other one."""
    graph = (
        "g (float[2, 2, 7, 7] x) => (float[2, 4, 5, 5] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"
    )
    model = parse(graph, {"w": random(4, 2, 3, 3), **batchnorm(4)})
    for name in ("pieces", "whole"):
        (tmp_path / name).mkdir()
    assert built(model, tmp_path / "pieces").ok
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import trtnorm_cli.tensorrt.capabilities as c\n"
        "c.CAPABILITIES = tuple(one for one in c.CAPABILITIES if one.name != 'engine in pieces')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert built(model, tmp_path / "whole").ok
    assert (tmp_path / "pieces" / "out.engine").read_bytes() == (tmp_path / "whole" / "out.engine").read_bytes()
