"""The files of builds in the output folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trtnorm_cli.batch.store import Store, StoredFile
from trtnorm_cli.files import cannot_write, sha256_of
from trtnorm_cli.placing import put_in_place, remove_dead_lock
from trtnorm_cli.scratch import scratch_beside


def put_files(store: Store, result: Mapping[str, Any], output: Path) -> None:
    """Give the files of one build their names in ``output``, all or none; those that are there stay."""
    files = [StoredFile(**file) for file in result["files"]]
    if all(_is_there(file, output / file.name) for file in files):
        remove_dead_lock(output / files[0].name)
        return
    with scratch_beside(output / files[0].name) as folder:
        for file in files:
            store.get_file(file, folder / file.name)
        put_in_place({folder / file.name: output / file.name for file in files}, folder)


def _is_there(file: StoredFile, path: Path) -> bool:
    try:
        return path.stat().st_size == file.bytes and sha256_of([path]) == file.sha256
    except OSError:
        return False


def make_folder(output: Path) -> None:
    """Raises ``UsageProblem`` or ``NoRoom`` where it cannot be made."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write("the folder", output, error, "choose another one with -o") from error
