"""The files that a job reads, found on the machine that has the plan, and laid out again where the job is done."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from trtnorm_cli.batch.job import Job
from trtnorm_cli.batch.profiles import PlannedSettings
from trtnorm_cli.batch.store import Store, StoredFile
from trtnorm_cli.errors import ModelError, ProfileError, TrtnormError, UsageProblem
from trtnorm_cli.files import sha256_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.load import read_model
from trtnorm_cli.onnx_model.stored import external_entries, external_tensors, is_own_reference
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.plugins import library_paths
from trtnorm_cli.record import Record
from trtnorm_cli.target import Target, parse_model
from trtnorm_cli.weights_file import INDEX, parts_of


@dataclass(frozen=True)
class InputFile(Record):
    """One file: its place on the machine that has the plan, its place beside the others, and its bytes."""

    place: str
    path: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Inputs(Record):
    """All that a job reads. ``spec`` is the model where the plan is. ``packages`` are those that an export depends on."""

    spec: str
    model: tuple[InputFile, ...]
    weights: tuple[InputFile, ...]
    profile: tuple[InputFile, ...]
    settings: PlannedSettings
    packages: dict[str, str]

    @property
    def files(self) -> tuple[InputFile, ...]:
        return (*self.model, *self.weights, *self.profile)

    @property
    def target(self) -> Target:
        """The model, as the machine that has the plan names it."""
        return parse_model(self.spec)

    @property
    def bytes(self) -> int:
        """The size of the model and its weights."""
        return sum(file.bytes for file in (*self.model, *self.weights))


@dataclass(frozen=True)
class LaidOut:
    """The inputs of a job where it is done."""

    spec: str
    weights: Path | None
    profile: BuildProfile | None


class InputReader:
    """Finds the files of jobs. Each is read once, however many jobs have it."""

    def __init__(self) -> None:
        self._digests: dict[Path, tuple[str, int]] = {}
        self._models: dict[str, tuple[InputFile, ...]] = {}

    def inputs(self, job: Job) -> Inputs:
        """Raises ``ProfileError``, ``ModelError`` or ``UsageProblem`` where a file is missing or cannot be used."""
        settings = PlannedSettings.of(job.profile_path, job.settings, job.precision)
        profile = settings.profile()
        target = parse_model(job.spec)
        packages: dict[str, str] = {}
        if target.is_pytorch:
            sources = list(_module_files(target)) if target.kind == "module" else [target.path, *map(Path, job.files)]
            if target.kind == "file":
                sources += [file for file in imported_files(target.path) if file not in sources]
            packages = _packages(sources)
            model = self._files([] if target.kind == "module" else sources)
            if target.kind == "module":
                packages[target.location] = sha256_of(sources)
        else:
            if job.spec not in self._models:
                self._models[job.spec] = self._files(_onnx_files(target.path))
            model = self._models[job.spec]
        weights = [] if job.weights is None else _weight_files(Path(job.weights))
        return Inputs(job.spec, model, self._files(weights), self._files(_profile_files(settings, profile)), settings, packages)

    def _files(self, paths: Iterable[Path]) -> tuple[InputFile, ...]:
        given = [Path(os.path.normpath(path.absolute())) for path in paths]
        if not given:
            return ()
        root = os.path.commonpath([path.parent for path in given])
        return tuple(self._file(path, root) for path in given)

    def _file(self, path: Path, root: str) -> InputFile:
        if path not in self._digests:
            try:
                self._digests[path] = sha256_of([path]), path.stat().st_size
            except OSError as error:
                raise ModelError(
                    f"the file cannot be read: {error.strerror}", str(path), "check the path in the plan"
                ) from error
        return InputFile(os.path.relpath(path, root), str(path), *self._digests[path])


def _onnx_files(path: Path) -> list[Path]:
    """The file and its external data. Of a file that is no model there is only itself: the job will say what is wrong."""
    if not path.is_file():
        raise ModelError("there is no such file", str(path), "check the path in the plan")
    try:
        proto = read_model(path)
    except TrtnormError:
        return [path]
    names = dict.fromkeys(
        external_entries(tensor).get("location", "") for tensor in external_tensors(proto) if not is_own_reference(tensor)
    )
    inside = [path.parent / name for name in names if name and not Path(name).is_absolute() and ".." not in Path(name).parts]
    return [path, *(file for file in inside if file.is_file())]


def _weight_files(path: Path) -> list[Path]:
    """A file of weights, with the parts that an index names."""
    if not path.name.endswith(INDEX):
        return [path]
    return [path, *parts_of(path)]


def _profile_files(settings: PlannedSettings, profile: BuildProfile | None) -> list[Path]:
    """The build profile's file, and those that it names."""
    if settings.source is None or profile is None:
        return []
    path = Path(settings.source)
    data = profile.calibration_data
    further = [*library_paths(profile, path.parent)]
    if data is not None:
        if not data.exists():
            raise ProfileError("the calibration inputs are not there", f"{path}: precision.data: {data}", "check the path")
        further += sorted(data.glob("*.npy")) if data.is_dir() else [data]
    return [path, *further]


def imported_files(file: Path) -> list[Path]:
    """The Python files beside ``file`` that it imports, and those that these import; a package with all of its files."""
    found: dict[Path, None] = {}
    waiting = [file]
    while waiting:
        for imported in _imported(waiting.pop(), file.parent):
            if imported not in found and imported != file:
                found[imported] = None
                waiting.append(imported)
    return sorted(found)


def _imported(file: Path, folder: Path) -> Iterator[Path]:
    for name in _import_names(file):
        first = folder / name
        if first.with_suffix(".py").is_file():
            yield first.with_suffix(".py")
        if first.is_dir() and any(first.glob("*.py")):
            yield from first.rglob("*.py")


def _import_names(file: Path) -> set[str]:
    """The first parts of the modules that a file imports anywhere."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").partition(".")[0]
            names |= {module} if module else {alias.name for alias in node.names}
    return names


def _module_files(target: Target) -> list[Path]:
    """The files of an installed package that a model comes from."""
    name = target.location.partition(".")[0]
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None:
        raise ModelError(f"there is no module {name!r}", target.text, "install it here and on the workers")
    origin = Path(found.origin)
    return sorted(origin.parent.rglob("*.py")) if origin.name == "__init__.py" else [origin]


def _packages(files: Iterable[Path]) -> dict[str, str]:
    """The versions of the installed packages that these files import, and that of PyTorch."""
    names = {"torch"}.union(*(_import_names(file) for file in files if file.suffix == ".py"))
    known = metadata.packages_distributions()
    wanted = {one for name in names - set(sys.stdlib_module_names) for one in known.get(name, ())}
    return versions_of(wanted)


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """The versions of packages that are installed here; empty for one that is not."""
    found = {}
    for name in sorted(packages):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def send(inputs: Inputs, store: Store) -> None:
    """Put the files of a job into the store, for workers that do not have them. Raises ``UsageProblem`` for paths that only
    this machine can have."""
    for file in inputs.profile[1:]:
        if _names_absolute(inputs.settings, file):
            what = "the build profile names a file by its absolute path, which a worker may not have"
            raise UsageProblem(what, f"{inputs.settings.source}: {file.path}", "name it relative to the build profile")
    for file in inputs.files:
        if not store.has_object(file.sha256):
            stored = store.put_file(Path(file.path), file.place)
            if stored.sha256 != file.sha256:
                raise _changed(file)


def _names_absolute(settings: PlannedSettings, file: InputFile) -> bool:
    return settings.text is not None and re.search(rf"{re.escape(file.path)}\b", settings.text) is not None


def laid_out(inputs: Inputs, store: Store, folder: Path, here: bool) -> LaidOut:
    """The inputs on this machine: in their place where the plan is ``here``, else fetched from the store into ``folder``.

    Raises ``ModelError`` where a file is not what it was when the plan was read.
    """
    if here:
        for file in inputs.files:
            if not Path(file.path).is_file() or sha256_of([Path(file.path)]) != file.sha256:
                raise _changed(file)
        weights = Path(inputs.weights[0].path) if inputs.weights else None
        return LaidOut(inputs.spec, weights, inputs.settings.profile())
    for kind, files in (("model", inputs.model), ("weights", inputs.weights), ("profile", inputs.profile)):
        for file in files:
            store.get_file(StoredFile(file.place, file.sha256, file.bytes), folder / kind / file.place)
    spec = inputs.spec
    if inputs.model:
        spec = str(folder / "model" / inputs.model[0].place)
        target = inputs.target
        spec += f":{target.attribute}" if target.attribute else ""
    weights = folder / "weights" / inputs.weights[0].place if inputs.weights else None
    source = folder / "profile" / inputs.profile[0].place if inputs.profile else None
    return LaidOut(spec, weights, inputs.settings.profile(source))


def _changed(file: InputFile) -> ModelError:
    what = "changed" if Path(file.path).is_file() else "was removed"
    return ModelError(f"the file {what} after the plan was read", file.path, "run the batch again when nothing writes to it")
