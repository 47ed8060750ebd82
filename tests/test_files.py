"""The digest of a file that is read while it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trtnorm_cli import files
from trtnorm_cli.files import part_of, sha256_while_written

CONTENT = bytes(range(256)) * 40


def steps(work: Iterator[bool]) -> Callable[[], bool]:
    return lambda: next(work)


def written(file: Path, cuts: list[int], name: bool = True) -> Iterator[bool]:
    """Write the content in pieces, and give it its name at last."""
    with part_of(file).open("wb", buffering=0) as stream:
        for start, end in zip([0, *cuts], [*cuts, len(CONTENT)], strict=True):
            stream.write(CONTENT[start:end])
            yield False
    if name:
        part_of(file).replace(file)
    yield True


@pytest.fixture
def hashed(monkeypatch) -> list[list[Path]]:
    """The files that were read once more as a whole."""
    found: list[list[Path]] = []
    real = files.sha256_of
    monkeypatch.setattr(files, "sha256_of", lambda paths: found.append(paths) or real(paths))
    return found


@pytest.mark.parametrize("cuts", [[], [1], [7, 5000], [4096, 8192]], ids=str)
@pytest.mark.parametrize("chunk", [100, 1 << 20])
def test_it_is_that_of_the_whole_file_which_is_read_once(tmp_path, monkeypatch, hashed, cuts, chunk):
    monkeypatch.setattr(files, "_CHUNK", chunk)
    file = tmp_path / "m.engine"
    assert sha256_while_written(file, steps(written(file, cuts))) == hashlib.sha256(CONTENT).hexdigest()
    assert not hashed


def test_a_file_that_was_there_at_once_is_read_then(tmp_path, hashed):
    file = tmp_path / "m.engine"
    file.write_bytes(CONTENT)
    assert sha256_while_written(file, lambda: True) == hashlib.sha256(CONTENT).hexdigest()
    assert hashed == [[file]]


@pytest.mark.parametrize("other", [CONTENT[::-1], CONTENT + b"more", b""], ids=["other bytes", "longer", "empty"])
def test_another_file_in_its_place_is_read_as_it_is(tmp_path, hashed, other):
    """As an engine that was built before, or that a second attempt wrote."""
    file = tmp_path / "m.engine"

    def replaced() -> Iterator[bool]:
        yield from list(written(file, [10], name=False))[:-1]
        part_of(file).unlink()
        file.write_bytes(other)
        yield True

    assert sha256_while_written(file, steps(replaced())) == hashlib.sha256(other).hexdigest()
    assert hashed == [[file]]


def test_an_error_of_the_writing_ends_it(tmp_path):
    def failing() -> bool:
        raise ValueError("there is no engine")

    part_of(tmp_path / "m.engine").write_bytes(CONTENT)
    with pytest.raises(ValueError, match="no engine"):
        sha256_while_written(tmp_path / "m.engine", failing)
