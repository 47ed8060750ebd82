"""Files of any size: their SHA-256, whether they may be written, and writing them in one step."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from trtnorm_cli.errors import NoRoom, TrtnormError, UsageProblem

_CHUNK = 1 << 20


def sha256_of(files: Iterable[Path], between: Callable[[], None] = lambda: None) -> str:
    """The digest of the contents of ``files``, one after the other. ``between`` pieces of them an error may end it."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
                between()
    return digest.hexdigest()


def part_of(file: Path) -> Path:
    """Where ``file`` is while it is written."""
    return file.with_name(f"{file.name}.part")


def sha256_while_written(file: Path, is_written: Callable[[], bool]) -> str:
    """The digest of ``file``, read piece by piece while these come to be in its part.

    ``is_written`` is asked again and again: it waits a moment, or is true once all of the file is there under its name.
    """
    digest, length, part = hashlib.sha256(), 0, part_of(file)
    is_whole, stream = False, None
    try:
        while True:
            if stream is None:
                with suppress(FileNotFoundError):
                    stream = part.open("rb", buffering=0)
            chunk = b"" if stream is None else stream.read(_CHUNK)
            if chunk:
                digest.update(chunk)
                length += len(chunk)
            elif is_whole:
                break
            else:
                is_whole = is_written()
        if stream is not None and _are_one(os.fstat(stream.fileno()), file.stat(), length):
            return digest.hexdigest()
    finally:
        if stream is not None:
            stream.close()
    return sha256_of([file])


def _are_one(read: os.stat_result, now: os.stat_result, length: int) -> bool:
    """True where what was read, so many bytes of it, is the file that is there now."""
    return (read.st_dev, read.st_ino, length) == (now.st_dev, now.st_ino, now.st_size)


def digest_of(values: Any) -> str:
    """The digest of JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def require_free(targets: Iterable[Path], sources: Iterable[Path]) -> None:
    """Raise ``UsageProblem`` when writing one of ``targets`` would overwrite one of ``sources``, or one is no file."""
    sources = [source for source in sources if source.exists()]
    for target in targets:
        if target.is_dir():
            raise UsageProblem("the output is a folder", str(target), "give the name of a file in it")
        if target.exists() and not target.is_file():  # it would be replaced: a system without /dev/null is broken
            raise UsageProblem("the output is a device or a pipe, not a file", str(target), "give the name of a file")
        if any(target.exists() and target.samefile(source) for source in sources):
            raise UsageProblem("the output would overwrite what it is made from", str(target), "choose another name")


def cannot_write(what: str, where: Path, error: OSError, hint: str) -> TrtnormError:
    """The error of a file or folder that cannot be written: ``NoRoom`` where its disk is full."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoom(f"{what} cannot be written: {error.strerror}", str(where), f"make room on that disk, or {hint}")
    return UsageProblem(f"{what} cannot be written: {error.strerror or error}", str(where), hint)


def write_in_one_step(text: str, path: Path) -> None:
    """Write ``text`` to ``path``, which exists, or changes, only once all of it is written."""
    temporary = path.with_name(f".{path.name}.partial")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def save_in_one_step(record: dict[str, Any], path: Path) -> None:
    """Write ``record`` as JSON to ``path`` in one step."""
    write_in_one_step(json.dumps(record, indent=2) + "\n", path)
