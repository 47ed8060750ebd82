"""The folder of one build."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trtnorm_cli.errors import BuilderFailure
from trtnorm_cli.files import cannot_write
from trtnorm_cli.scratch import IN_TEMPORARY, MARK, Scratch, explained, remove_dead
from trtnorm_cli.tensorrt.evidence import keep_evidence
from trtnorm_cli.tensorrt.origin import Subject

_HINT = "set TMPDIR to a folder with room"


@contextmanager
def work_folder(subject: Subject) -> Iterator[Path]:
    """The folder of one build. What a report needs stays when TensorRT refused the model or died; an empty folder does not."""
    remove_dead(Path(tempfile.gettempdir()), IN_TEMPORARY)
    try:
        scratch = Scratch(f"{IN_TEMPORARY}build-")
    except OSError as error:
        raise cannot_write("a folder to work in", Path(tempfile.gettempdir()), error, _HINT) from error
    try:
        with explained(scratch.path, _HINT):
            yield scratch.path
    except BuilderFailure as error:
        with suppress(OSError):
            if any(path.name != MARK for path in scratch.path.iterdir()):
                scratch.keep()
                keep_evidence(scratch.path, error, subject)
        raise
    finally:
        scratch.remove()
