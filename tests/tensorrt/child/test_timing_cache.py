"""The timing cache file: shared by builds that run at the same time, never half-written."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from trtnorm_cli.tensorrt.child import timing_cache
from trtnorm_cli.tensorrt.child.timing_cache import attach, read, store, update


class Config:
    """The part of IBuilderConfig that has to do with timing caches; a cache holds lines."""

    def __init__(self, fits: bool = True) -> None:
        self.cache, self.fits = None, fits

    def create_timing_cache(self, content: bytes) -> Cache:
        return Cache(content)

    def set_timing_cache(self, cache: Cache, ignore_mismatch: bool) -> bool:
        self.cache = cache
        return self.fits and not ignore_mismatch

    def get_timing_cache(self) -> Cache:
        return self.cache


class Cache:
    def __init__(self, content: bytes) -> None:
        self.lines = set(content.split())

    def combine(self, other: Cache, ignore_mismatch: bool) -> bool:
        self.lines |= other.lines
        return True

    def serialize(self) -> bytes:
        return b"\n".join(sorted(self.lines))


def test_what_one_build_measured_the_next_one_finds(tmp_path):
    path, first, second = tmp_path / "a.cache", Config(), Config()
    attach(first, path)
    assert not path.exists()
    first.cache.lines.add(b"conv")
    store(first, path)
    attach(second, path)
    assert second.cache.lines == {b"conv"}


def test_what_others_wrote_meanwhile_stays(tmp_path):
    path, one, other = tmp_path / "a.cache", Config(), Config()
    attach(one, path)
    attach(other, path)
    one.cache.lines.add(b"one")
    other.cache.lines.add(b"other")
    store(one, path)
    store(other, path)
    assert read(path) == b"one\nother"


def test_a_cache_of_another_gpu_is_refused(tmp_path):
    with pytest.raises(ValueError, match="another TensorRT or for another GPU"):
        attach(Config(fits=False), tmp_path / "a.cache")


def test_an_error_leaves_the_earlier_file(tmp_path):
    path = tmp_path / "a.cache"
    path.write_bytes(b"earlier")

    def fails(current: bytes) -> bytes:
        raise MemoryError

    with pytest.raises(MemoryError):
        update(path, fails)
    assert path.read_bytes() == b"earlier"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.cache", "a.cache.lock"]


def _add(path: Path, start: int) -> None:
    for number in range(start, start + 20):
        update(path, lambda current, n=number: current + b"%d\n" % n)


def test_builds_at_the_same_time_lose_nothing(tmp_path):
    path = tmp_path / "a.cache"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_add, args=(path, start)) for start in (0, 100, 200)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(int(n) for n in timing_cache.read(path).split()) == [s + n for s in (0, 100, 200) for n in range(20)]
