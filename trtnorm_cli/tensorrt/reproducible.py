"""Make an engine a second time and compare the bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trtnorm_cli.child_process import can_fix_addresses
from trtnorm_cli.errors import NotReproducible, TrtnormError
from trtnorm_cli.files import sha256_of
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult

_AGAIN = "again"


def require_reproducible(
    first: Sequence[Path],
    first_engine: Path,
    work: Path,
    make_again: Callable[[Path, Path], tuple[Sequence[Path], BuildRequest]],
    build: Callable[[BuildRequest, Path], BuildResult],
) -> None:
    """Rewrite and build once more, and raise ``NotReproducible`` when a byte differs.

    ``first`` are the files of the first rewritten model. ``make_again`` writes another into a folder and returns its files, and
    the request to build a given engine from it. ``build`` runs one build in a folder.
    """
    folder = work / _AGAIN
    folder.mkdir()
    engine = folder / "again.engine"
    second, request = make_again(folder, engine)
    if sha256_of(first) != sha256_of(second):
        raise _different("rewriting the model twice gave two different files", first[-1], second[-1])
    result = build(request, folder)
    if not result.ok:
        reasons = "; ".join(message.text for message in result.errors)
        raise NotReproducible("the second build was refused, the first was not", reasons, _REPORT)
    if sha256_of([first_engine]) != sha256_of([engine]):
        raise _different("building the same model twice gave two different engines", first_engine, engine, _cause())


def _cause() -> str:
    """The reason why TensorRT gives the same model other bytes, as far as this system shows it."""
    return _TENSORRT if can_fix_addresses() else _ADDRESSES


_REPORT = "report it with the model"
_TENSORRT = (
    "the rewritten model was the same both times, so TensorRT made the difference: TensorRT 10 and 11 choose kernels by timing "
    "them, unless `timing_cache` keeps the times. Build without --check-reproducible where that does no harm"
)
_ADDRESSES = (
    "the rewritten model was the same both times. TensorRT for RTX numbers some inner tensors by the addresses of its memory, "
    "and this system does not let a process fix those (personality(2)): in a container, allow it with "
    "--security-opt seccomp=unconfined. Kernels and weights are not affected"
)


def _different(summary: str, one: Path, other: Path, hint: str = _REPORT) -> TrtnormError:
    sizes = f"{one.stat().st_size} and {other.stat().st_size} bytes"
    return NotReproducible(summary, f"sha256 {sha256_of([one])} and {sha256_of([other])}, {sizes}", hint)
