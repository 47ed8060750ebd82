"""Read an ONNX file that somebody else wrote, and say clearly what is wrong with it when it cannot be used."""

from __future__ import annotations

import math
from dataclasses import field
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError

from trtnorm_cli.errors import ModelError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.file_demands import require_few_nodes, require_known_types, require_texts, require_whole_nodes
from trtnorm_cli.onnx_model.infer import checker_objection
from trtnorm_cli.onnx_model.light_copy import light_copy, with_stand_ins
from trtnorm_cli.onnx_model.light_file import read_light
from trtnorm_cli.onnx_model.repair import mend
from trtnorm_cli.onnx_model.source_files import SourceFiles
from trtnorm_cli.onnx_model.stored import (
    external_entries,
    external_tensors,
    is_external,
    is_own_reference,
    is_within_the_model,
    raw_length,
    tensor_bytes,
    values_are_packed,
)
from trtnorm_cli.onnx_model.walk import all_nodes, all_tensors

# The checker refuses these, ONNX Runtime and TensorRT take them: plugin operators written in the default domain,
# GroupNormalization of opset 18, and outputs of unknown rank.
_CHECKER_OBJECTIONS_THAT_RUN = (
    "No Op registered for",
    "is deprecated in domain_version",
    "Field 'shape' of 'type' is required",
)

_MOST_BYTES = 1 << 31
_UNKNOWN_DOMAIN = "trtnorm.unknown"


@dataclass(frozen=True)
class LoadedModel:
    """A model as it stands in its file, mended where it needs that and has one meaning.

    Large tensors stay in the file, and refer to it (``stored.tensor_array`` reads them). Tensors in external files stay there;
    ``folder`` is what they are relative to, and ``data_files`` are those files.
    ``runs_unmended`` is false where ONNX Runtime would not run the file, or not with this meaning.
    """

    path: Path
    proto: onnx.ModelProto
    warnings: tuple[str, ...] = ()
    data_files: tuple[Path, ...] = ()
    runs_unmended: bool = True
    files: SourceFiles | None = field(default=None, repr=False, compare=False)

    @property
    def folder(self) -> Path:
        return self.path.parent

    @property
    def sha256(self) -> str:
        """The digest of the file and its external files as they were read."""
        return (self.files or SourceFiles([self.path, *self.data_files])).sha256()

    def start_digest(self) -> None:
        """Compute ``sha256`` beside other work."""
        if self.files is not None:
            self.files.start_digest()

    def keep_digest(self) -> None:
        """Know ``sha256`` before the files go."""
        if self.files is not None:
            self.files.sha256()

    def require_unchanged(self) -> None:
        """Raise ``ModelError`` when a file has changed since it was read: weights are read from it all the time."""
        if self.files is not None:
            self.files.require_unchanged()


def load_model(path: Path) -> LoadedModel:
    """Read and validate ``path``.

    Raises ``ModelError`` for anything that is not a complete, structurally valid ONNX model: a missing file, a folder,
    other content, a truncated file, or external data that is missing, too short or outside the model's folder.
    """
    _require_utf8_name(path)
    _require_a_file(path)
    state = SourceFiles([path])
    proto = read_model(path)
    require_texts(path, proto)
    require_few_nodes(path, proto)
    mended = mend(proto)
    _require_a_graph(path, proto)
    require_known_types(path, proto)
    require_whole_nodes(path, proto)
    files = _require_external_data(path, proto)
    # The checker opens no data that a link leads to, which others do.
    is_asked_alone = bool(mended.notes) or any(file.is_symlink() for file in files)
    warnings = (*mended.notes, *_check(path, proto, is_asked_alone))
    _require_whole_tensors(path, proto)
    state.add(files)
    return LoadedModel(path, proto, warnings, tuple(files), mended.runs_unmended, state)


def read_model(path: Path) -> onnx.ModelProto:
    """The model in ``path`` as it stands, large tensors left in the file. Raises ``ModelError`` where it is none."""
    try:
        return read_light(path) or _parsed(path)
    except OSError as error:
        raise ModelError(f"the file cannot be read: {error.strerror}", str(path)) from error


def _require_a_file(path: Path) -> None:
    try:
        if path.is_dir():
            raise ModelError("this is a folder, not an ONNX file", str(path), "give the path of the .onnx file inside it")
        size = path.stat().st_size if path.is_file() else None
    except OSError as error:
        raise ModelError(f"the file cannot be read: {error.strerror}", str(path)) from error
    if size is None:
        raise ModelError("there is no such file", str(path), "check the path of the model")
    if not size:
        raise ModelError("the file is empty", str(path), "export the model again; the export probably failed")


def _parsed(path: Path) -> onnx.ModelProto:
    proto = onnx.ModelProto()
    try:
        # Protobuf takes no more, and a hole in a file costs its author nothing.
        proto.ParseFromString(path.read_bytes() if path.stat().st_size < _MOST_BYTES else b"\xff")
    except DecodeError as error:
        raise ModelError(
            "this is not an ONNX model, or it is truncated: its protobuf encoding cannot be decoded",
            str(path),
            "copy or export the file again, and compare its size with the original",
        ) from error
    return proto


def _require_a_graph(path: Path, proto: onnx.ModelProto) -> None:
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError(
            "this is not an ONNX model: it has no graph with outputs",
            str(path),
            "give a model written by an exporter, not a data file",
        )
    for value in proto.graph.input:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.elem_type:
            raise ModelError(f"the input {value.name} has no element type", str(path), "export the model again")
    if not any(entry.domain in DEFAULT_DOMAINS for entry in proto.opset_import):
        raise ModelError("the model does not say which ONNX opset it uses", str(path), "export the model again")


def _require_external_data(path: Path, proto: onnx.ModelProto) -> list[Path]:
    """The external files, in the order of first use; raises ``ModelError`` when one cannot be used."""
    sizes: dict[str, tuple[Path, int]] = {}
    for tensor in external_tensors(proto):
        if is_own_reference(tensor):
            continue
        entries, where = external_entries(tensor), f"{path}, tensor {tensor.name}"
        location = entries.get("location", "")
        if location not in sizes:
            file = _external_file(path, location, where)
            sizes[location] = file, file.stat().st_size
        _require_size(*sizes[location], entries, tensor, where)
    return list(dict.fromkeys(file for file, _ in sizes.values()))


def _external_file(path: Path, location: str, where: str) -> Path:
    file = path.parent / location
    # A cache of downloads has links to the model and to its data, which lie beside each other under other names.
    is_linked = ".." not in Path(location).parts and _is_inside(file, path.resolve().parent)
    if not location or Path(location).is_absolute() or not (_is_inside(file, path.parent) or is_linked):
        raise ModelError(
            f"the external data {location!r} is outside the model's folder",
            where,
            "place the data beside the model and save it again with a relative location",
        )
    if not _is_file(file):
        raise ModelError(
            f"the external data file {location} is missing",
            where,
            f"copy {location} into {path.parent}; a model with external data is two files",
        )
    if file.stat().st_nlink > 1:  # any file of the disk can be given such a name; ONNX does not read it either
        raise ModelError(
            f"the external data file {location} is a hard link: the same file has another name elsewhere",
            where,
            f"make it a file of its own: cp {location} copy && mv copy {location}",
        )
    return file


def _is_inside(file: Path, folder: Path) -> bool:
    """True when ``file`` lies in ``folder`` after links are followed."""
    try:
        return file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):  # links in a circle, or a name that no file can have
        return False


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long, or a folder on the way cannot be searched
        return False


def _require_size(file: Path, size: int, entries: dict[str, str], tensor: onnx.TensorProto, where: str) -> None:
    needed = tensor_bytes(tensor)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", needed))
    except ValueError as error:
        raise ModelError("offset and length of the external data are not numbers", where, "save the model again") from error
    if offset < 0 or length != needed:
        raise ModelError(
            f"the external data is {length} bytes from {offset} on, the tensor needs {needed}", where, "save the model again"
        )
    if offset + length > size:
        raise ModelError(
            f"the external data file {file.name} is truncated: {offset + length} bytes are needed, it has {size}",
            where,
            f"copy {file.name} again",
        )
    if "length" not in entries:  # without it, readers take the rest of the file
        tensor.external_data.add(key="length", value=str(length))


def _require_whole_tensors(path: Path, proto: onnx.ModelProto) -> None:
    """Raise ``ModelError`` for a tensor that holds another number of bytes or values than its shape needs."""
    for tensor in all_tensors(proto):
        held: int | None
        if tensor.HasField("raw_data") or is_own_reference(tensor):
            held, needed, unit = raw_length(tensor), tensor_bytes(tensor), "bytes"
        else:
            held, needed, unit = _values_held(tensor), math.prod(tensor.dims), "values"
        if held is not None and held != needed:
            raise ModelError(
                f"the tensor holds {held} {unit}, its shape and type need {needed}",
                f"{path}, tensor {tensor.name}",
                "the file is damaged: copy or export it again",
            )


def _values_held(tensor: onnx.TensorProto) -> int | None:
    """How many values stand in the field of the tensor's type; None where a value is no entry of its own."""
    is_complex = onnx.TensorProto.DataType.Name(tensor.data_type).startswith("COMPLEX")
    if is_external(tensor) or values_are_packed(tensor) or is_complex:
        return None
    return len(getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type)))


def _require_utf8_name(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as error:
        raise ModelError("the file's name is not UTF-8, which ONNX asks for", str(path), "rename the file") from error


def _check(path: Path, proto: onnx.ModelProto, is_asked_alone: bool) -> tuple[str, ...]:
    """Raise ``ModelError`` for what the ONNX checker refuses and no runtime takes; returns what it refuses besides.

    ``proto`` is asked about alone where the file has other content, or the checker would not look at its data.
    """
    reason = checker_objection(proto) if is_asked_alone else objection_to_file(path, proto)
    if reason is None:
        return ()
    if not any(text in reason for text in _CHECKER_OBJECTIONS_THAT_RUN):
        raise _invalid(path, reason)
    # The checker stops at its first objection; what it would have said next is asked of a copy without the first.
    rest = checker_objection(_without_what_runs(proto))
    if rest is not None:
        raise _invalid(path, rest)
    return (f"the ONNX checker objects, and the model is taken as it is: {reason}",)


def objection_to_file(path: Path, proto: onnx.ModelProto) -> str | None:
    """The objection of the ONNX checker to the file, of which ``proto`` is the content.

    It looks into other files, which takes a path; of the weights in this one, only at whether there are any.
    """
    elsewhere = any(not is_within_the_model(tensor) for tensor in external_tensors(proto))
    try:
        onnx.checker.check_model(str(path) if elsewhere else with_stand_ins(proto))
    except onnx.checker.ValidationError as error:
        return _first_sentence(str(error))
    return None


def _invalid(path: Path, reason: str) -> ModelError:
    return ModelError(f"this is not a valid ONNX model: {reason}", str(path), "export it again, or mend the node that is named")


def _without_what_runs(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A light copy without what the checker refuses and others take: unknown operators and unknown ranks."""
    copy = light_copy(proto)
    opset = max((e.version for e in copy.opset_import if e.domain in DEFAULT_DOMAINS), default=1)
    for node in all_nodes(copy):
        if node.domain in DEFAULT_DOMAINS and not _has_schema(node.op_type, opset):
            node.domain = _UNKNOWN_DOMAIN
    for imports in (copy.opset_import, *(function.opset_import for function in copy.functions)):
        imports.add(domain=_UNKNOWN_DOMAIN, version=1)
    for value in (*copy.graph.input, *copy.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    return copy


def _has_schema(operator: str, opset: int) -> bool:
    try:
        return not onnx.defs.get_schema(operator, opset, "").deprecated
    except onnx.defs.SchemaError:
        return False


def _first_sentence(text: str) -> str:
    """The checker's message without the dump of the node that follows it."""
    return " ".join(text.split("\n\n==> Context:")[0].split())
