"""The folder of one build."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trtnorm_cli.errors import BuilderFailure, UsageProblem
from trtnorm_cli.tensorrt.evidence import keep_evidence
from trtnorm_cli.tensorrt.origin import Subject


@contextmanager
def work_folder(subject: Subject) -> Iterator[Path]:
    """The folder of one build. What a report needs stays when TensorRT refused the model or died."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="trtnorm-build-"))
    except OSError as error:
        raise UsageProblem(
            f"no folder can be made to work in: {error.strerror}", error.filename, "set TMPDIR to a folder with room"
        ) from error
    keep = False
    try:
        yield folder
    except BuilderFailure as error:
        keep = True
        with suppress(OSError):
            keep_evidence(folder, error, subject)
        raise
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
