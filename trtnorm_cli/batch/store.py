"""The store: what was built by anyone, by the address of what it was made from, in a folder or behind any URL of fsspec.

Files lie under the digest of their bytes, and a result names them. It is written last, in one step, and only where there is
none yet: so nothing half-written is ever seen, and two batches that build the same keep the result of the first.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from trtnorm_cli.errors import ModelError, TrtnormError, UsageProblem
from trtnorm_cli.files import cannot_write, sha256_of
from trtnorm_cli.light_dataclass import dataclass

FORMAT = 1
_HINT = "check the URL and the access rights, or choose another store with --store"
_OBJECT_STORES = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss"))
_OBJECTS, _RESULTS, _CLAIMS, _TIMES = "objects", "results", "claims", "times"


@dataclass(frozen=True)
class StoredFile:
    """A file of a result or of a job's inputs: its name there, and the digest and number of its bytes."""

    name: str
    sha256: str
    bytes: int

    @staticmethod
    def of(name: str, path: Path) -> StoredFile:
        return StoredFile(name, sha256_of([path]), path.stat().st_size)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "sha256": self.sha256, "bytes": self.bytes}


class Store:
    """A store at ``url``. Raises ``UsageProblem`` or ``NoRoom`` where it cannot be read or written."""

    def __init__(self, url: str) -> None:
        self.url = url

    @cached_property
    def _place(self) -> tuple[Any, str]:
        import fsspec

        with self._explained():
            # Others write there too: what was listed before says nothing.
            files, root = fsspec.core.url_to_fs(self.url, use_listings_cache=False)
            return files, str(root).rstrip("/")

    @cached_property
    def _protocols(self) -> frozenset[str]:
        named = self._place[0].protocol
        return frozenset((named,) if isinstance(named, str) else named)

    def _make_room(self, path: str) -> None:
        """Make the folder of ``path``, where the store has folders. An object store would make a bucket of a misspelt name."""
        if not self._protocols & _OBJECT_STORES:
            self._place[0].makedirs(path.rpartition("/")[0], exist_ok=True)

    @cached_property
    def folder(self) -> Path | None:
        """The folder, where the store is one on this machine."""
        return Path(self._place[1]) if "file" in self._protocols else None

    def _explained(self) -> _Explained:
        return _Explained(self.url)

    def _path(self, *parts: str) -> str:
        return "/".join((self._place[1], *parts))

    def open(self) -> None:
        """Create the store where there is none. Raises where it is of another format."""
        with self._explained():
            files = self._place[0]
            try:
                self._make_room(self._path("store.json"))
                is_new = self._put_new(self._path("store.json"), _encoded({"format": FORMAT}))
            except FileNotFoundError as error:
                raise _cannot_write(self.url, error) from error
            if not is_new:
                found = json.loads(files.cat_file(self._path("store.json")))
                if found.get("format") != FORMAT:
                    what = f"the store is of format {found.get('format')}, and this trtnorm writes format {FORMAT}"
                    raise UsageProblem(what, self.url, "choose another store with --store")

    # Files

    def put_file(self, path: Path, name: str) -> StoredFile:
        """Put the bytes of ``path`` into the store, unless they are there."""
        stored = StoredFile.of(name, path)
        with self._explained():
            if not self.has_object(stored.sha256):
                self._send(path, self._object(stored.sha256))
        return stored

    def has_object(self, sha256: str) -> bool:
        """True where a file with these bytes is in the store."""
        return bool(self._place[0].exists(self._object(sha256)))

    def get_file(self, stored: StoredFile, path: Path) -> None:
        """Copy a file to ``path``. Raises ``ModelError`` where its bytes are not those that were stored."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._explained():
            try:
                self._place[0].get_file(self._object(stored.sha256), str(path))
            except FileNotFoundError as error:
                what = f"the store has lost {stored.name}"
                raise ModelError(what, f"{self.url}: {self._object(stored.sha256)}", _lost(self.url)) from error
        if sha256_of([path]) != stored.sha256:
            path.unlink(missing_ok=True)
            what = f"the bytes of {stored.name} in the store are not those that were put there"
            raise ModelError(what, f"{self.url}: {self._object(stored.sha256)}", _lost(self.url))

    def _object(self, sha256: str) -> str:
        return self._path(_OBJECTS, sha256[:2], sha256)

    # Results

    def results(self, kind: str, addresses: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The results that are there, by address. One listing, and one request for those that it has."""
        wanted = set(addresses)
        with self._explained():
            files = self._place[0]
            try:
                listed = files.ls(self._path(_RESULTS, kind), detail=False, refresh=True)
            except FileNotFoundError:
                return {}
            paths = {Path(path).name.removesuffix(".json"): path for path in listed if path.endswith(".json")}
            found = {address: path for address, path in paths.items() if address in wanted}
            contents = files.cat(list(found.values())) if len(found) > 1 else {p: files.cat_file(p) for p in found.values()}
            return {address: json.loads(contents[path]) for address, path in found.items()}

    def result(self, kind: str, address: str) -> dict[str, Any] | None:
        """The result at ``address``, None where there is none."""
        return self._read(self._path(_RESULTS, kind, f"{address}.json"))

    def put_result(self, kind: str, address: str, result: Mapping[str, Any]) -> dict[str, Any]:
        """Put a result where there is none. Returns the one that is there then: the first."""
        path = self._path(_RESULTS, kind, f"{address}.json")
        with self._explained():
            if self._put_new(path, _encoded(result)):
                return dict(result)
        return self._read(path) or dict(result)

    def put_anew(self, kind: str, address: str, result: Mapping[str, Any]) -> None:
        """Put what is known last, in place of what was known before."""
        self._put(self._path(_RESULTS, kind, f"{address}.json"), _encoded(result))

    # Durations, to foretell others

    def times(self, keys: Iterable[str]) -> dict[str, float]:
        """The seconds that jobs of these kinds took last, as far as known."""
        found = {key: self._read(self._path(_TIMES, f"{key}.json")) for key in dict.fromkeys(keys)}
        return {key: float(value["seconds"]) for key, value in found.items() if value is not None}

    def put_time(self, key: str, seconds: float) -> None:
        self._put(self._path(_TIMES, f"{key}.json"), _encoded({"seconds": seconds}))

    # Claims

    def claim(self, address: str) -> dict[str, Any] | None:
        """The claim of whoever works on ``address``; None where nobody does."""
        return self._read(self._claim(address))

    def put_claim(self, address: str, claim: Mapping[str, Any], *, anew: bool) -> bool:
        """Write a claim; ``anew`` only where there is none. Returns whether it stands."""
        with self._explained():
            if anew:
                return self._put_new(self._claim(address), _encoded(claim))
            self._put(self._claim(address), _encoded(claim))
            return True

    def drop_claim(self, address: str) -> None:
        with suppress(OSError, TrtnormError):
            self._place[0].rm_file(self._claim(address))

    def _claim(self, address: str) -> str:
        return self._path(_CLAIMS, f"{address}.json")

    # Bytes

    def _read(self, path: str) -> dict[str, Any] | None:
        with self._explained():
            try:
                content = self._place[0].cat_file(path)
            except FileNotFoundError:
                return None
        try:
            found = json.loads(content)
        except ValueError:
            return None
        return found if isinstance(found, dict) else None

    def _put(self, path: str, content: bytes) -> None:
        with self._explained():
            if self.folder is None:
                self._make_room(path)
                self._place[0].pipe_file(path, content)
            else:
                _beside(Path(path), content).replace(path)

    def _put_new(self, path: str, content: bytes) -> bool:
        """Write a file that must not be there; False where it is. At most one of several writers succeeds."""
        if self.folder is None:
            if self._place[0].exists(path):  # most of the time; what follows decides
                return False
            self._make_room(path)
            try:
                self._place[0].pipe_file(path, content, mode="create")
            except FileExistsError:
                return False
            except OSError as error:  # how s3fs words the 412 that a conditional write is answered with
                if "PreconditionFailed" in str(error) or "At least one of the pre-conditions" in str(error):
                    return False
                raise
            return True
        written = _beside(Path(path), content)
        try:
            os.link(written, path)
        except FileExistsError:
            return False
        except OSError:  # no hard links here: the name is taken in another single step
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
            except FileExistsError:
                return False
            written.replace(path)
        finally:
            written.unlink(missing_ok=True)
        return True

    def _send(self, path: Path, target: str) -> None:
        if self.folder is None:
            self._make_room(target)
            self._place[0].put_file(str(path), target)
            return
        import shutil

        final = Path(target)
        final.parent.mkdir(parents=True, exist_ok=True)
        partial = final.with_name(f".{final.name}.{secrets.token_hex(4)}")
        try:
            shutil.copyfile(path, partial)
            partial.replace(final)
        finally:
            partial.unlink(missing_ok=True)


class _Explained:
    """A block in which an error of the file system becomes one that names the store."""

    def __init__(self, url: str) -> None:
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, TrtnormError | FileNotFoundError):
            return
        if isinstance(error, OSError):
            raise _cannot_write(self._url, error) from error
        if isinstance(error, ImportError):
            raise UsageProblem(
                f"the store needs a further package: {error}", self._url, "install it, as in pip install s3fs"
            ) from error
        if isinstance(error, ValueError) or type(error).__module__.startswith(("botocore", "aiobotocore", "aiohttp", "google")):
            raise UsageProblem(f"the store cannot be used: {error}", self._url, _HINT) from error


def _cannot_write(url: str, error: OSError) -> TrtnormError:
    made = cannot_write("the store", Path(url), error, _HINT)
    made.where = url
    return made


def _encoded(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1) + "\n").encode()


def _beside(path: Path, content: bytes) -> Path:
    """``content`` in a file of another name in the folder of ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    written = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    written.write_bytes(content)
    return written


def _lost(url: str) -> str:
    return f"remove the store at {url}, or what it says of this job, and run the batch again"


def now() -> float:
    """Seconds since the epoch, for records alone."""
    return round(time.time(), 3)
