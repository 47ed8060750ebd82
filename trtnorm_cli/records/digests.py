"""Files as manifests name them: by their bytes, and without their folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trtnorm_cli.files import sha256_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record


@dataclass(frozen=True)
class Digest(Record):
    """The SHA-256 of the bytes of one or more files."""

    sha256: str


@dataclass(frozen=True)
class FileDigest(Record):
    """The name of a file and the SHA-256 of its bytes, with those of the files that belong to it."""

    file: str
    sha256: str

    @staticmethod
    def of(path: Path, files: Sequence[Path] = ()) -> FileDigest:
        """``files`` are those that the digest is of, by default ``path`` alone."""
        return FileDigest(path.name, sha256_of(files or [path]))
