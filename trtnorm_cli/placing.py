"""Give the files of one build their final names, after all of them are on the disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trtnorm_cli.errors import UsageProblem


def put_in_place(files: Mapping[Path, Path]) -> None:
    """Give each file its name, in order. The files lie on the disk of their names.

    Raises ``UsageProblem`` where that cannot be done.
    """
    for written, name in files.items():
        try:
            written.replace(name)
        except OSError as error:
            what = f"the file cannot be written: {error.strerror}"
            raise UsageProblem(what, str(name), "make room, or use -o") from error
