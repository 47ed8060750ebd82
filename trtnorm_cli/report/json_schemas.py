"""JSON Schemas of what commands print with ``--json`` and of the files that they write, made from the records themselves."""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import PurePath
from typing import Any, Literal, get_args, get_origin, get_type_hints

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import KEY, LEFT_OUT_BY_DEFAULT, NOT_IN_JSON
from trtnorm_cli.report.json_output import FORMATS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
# Records of measurements, which may be infinite or not a number: these are words, as JSON has no such numbers.
_MEASURED = (
    "trtnorm_cli.records.comparison", "trtnorm_cli.records.precision", "trtnorm_cli.evaluate.", "trtnorm_cli.rewrite.describe",
)  # fmt: skip
_WORDS = ["inf", "-inf", "nan"]
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    Any: {},
    object: {},
}


@dataclass(frozen=True)
class Output:
    """One form of JSON: the record that it is made from, where it is printed or written, and its class."""

    said: str
    module: str
    record: str


OUTPUTS = {
    "manifest": Output("OUT.engine.json, and `trtnorm build --json`", "trtnorm_cli.tensorrt.manifest", "Manifest"),
    "export": Output("MODEL.onnx.json, and `trtnorm export --json`", "trtnorm_cli.records.export", "ExportRecord"),
    "rewrite": Output("`trtnorm rewrite --json`", "trtnorm_cli.rewrite.rewritten", "RewriteRecord"),
    "inspect-model": Output("`trtnorm inspect MODEL.onnx --json`", "trtnorm_cli.rewrite.describe", "ModelDescription"),
    "inspect-network": Output(
        "`trtnorm inspect network:MODEL.onnx --json`", "trtnorm_cli.tensorrt.network.describe", "NetworkDescription"
    ),
    "inspect-engine": Output("`trtnorm inspect OUT.engine --json`", "trtnorm_cli.tensorrt.engine_file", "EngineDescription"),
    "inspect-module": Output(
        "`trtnorm inspect model.py:callable --json`", "trtnorm_cli.export.inspecting", "ModuleDescription"
    ),
    "diff": Output("`trtnorm diff --json`", "trtnorm_cli.differences.record", "Diff"),
    "compare": Output("`trtnorm compare --json`", "trtnorm_cli.records.comparison", "ComparisonRecord"),
    "batch": Output("`trtnorm batch --json`", "trtnorm_cli.records.batch", "BatchRecord"),
    "init": Output("`trtnorm init --json`", "trtnorm_cli.report.profile", "StartingProfile"),
    "doctor": Output("`trtnorm doctor --json`", "trtnorm_cli.tensorrt.doctor", "Findings"),
    "rules": Output("`trtnorm rules --json`", "trtnorm_cli.report.rules", "RulesRecord"),
    "rule": Output("`trtnorm rules show NAME --json`", "trtnorm_cli.report.rules", "RuleRecord"),
    "error": Output("the error of any command with --json", "trtnorm_cli.report.json_error", "ErrorOutput"),
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of the output ``name``."""
    output = OUTPUTS[name]
    record = getattr(importlib.import_module(output.module), output.record)
    writer = _Writer()
    body = writer.object_of(record)
    version = FORMATS.get(name)
    if version is not None:
        body["properties"] = {"format": {"const": version}, **body["properties"]}
        body["required"] = ["format", *body["required"]]
    else:
        version = _default_format(record)
        body["properties"]["format"] = {"const": version}
    head = {"$schema": DIALECT, "title": f"{output.said}, format {version}"}
    return {**head, **body, "$defs": dict(sorted(writer.definitions.items()))}


def _default_format(record: Any) -> int:
    """The version that a record says itself."""
    known = next((one.default for one in fields(record) if one.name == "format"), MISSING)
    return int(known) if known is not MISSING else int(importlib.import_module(record.__module__).FORMAT)


class _Writer:
    """Schemas of types, with those of classes under ``definitions``."""

    def __init__(self) -> None:
        self.definitions: dict[str, dict[str, Any]] = {}
        self._known: dict[str, Any] = {}

    def object_of(self, record: Any) -> dict[str, Any]:
        """The schema of a record. Its keys are its fields, and no others."""
        hints = get_type_hints(record, include_extras=True)
        properties, needed = {}, []
        for one in fields(record):
            if one.metadata.keys() >= NOT_IN_JSON.keys():
                continue
            key, kind = _key_and_type(one, hints[one.name])
            properties[key] = self.of(kind, record.__module__.startswith(_MEASURED))
            if not one.metadata.keys() >= LEFT_OUT_BY_DEFAULT.keys():
                needed.append(key)
        return {
            "description": " ".join((inspect.getdoc(record) or "").split()),
            "type": "object",
            "properties": properties,
            "required": needed,
            "additionalProperties": False,
        }

    def of(self, kind: Any, measured: bool) -> dict[str, Any]:
        """The schema of a type. ``measured`` numbers may be words too."""
        origin = get_origin(kind)
        if origin is typing.Annotated:
            return self.of(get_args(kind)[0], measured)
        if kind is float and measured:
            return {"anyOf": [{"type": "number"}, {"enum": _WORDS}]}
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if origin in (typing.Union, types.UnionType):
            return _any_of([self.of(one, measured) for one in get_args(kind)])
        if origin is Literal:
            return {"enum": list(get_args(kind))}
        if origin in (tuple, list):
            return self._list(origin, get_args(kind), measured)
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self.of(get_args(kind)[1], measured)}
        if isinstance(kind, type) and issubclass(kind, PurePath):
            return {"type": "string"}
        return self._reference(kind)

    def _list(self, origin: Any, items: tuple[Any, ...], measured: bool) -> dict[str, Any]:
        if origin is list or (len(items) == 2 and items[1] is Ellipsis):
            return {"type": "array", "items": self.of(items[0], measured)}
        each = [self.of(one, measured) for one in items]
        return {"type": "array", "prefixItems": each, "items": False, "minItems": len(each)}

    def _reference(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__
        if self._known.setdefault(name, kind) is not kind:
            raise TypeError(f"two classes are called {name}: {kind.__module__} and {self._known[name].__module__}")
        if name not in self.definitions:
            self.definitions[name] = {}
            self.definitions[name] = self.object_of(kind) if is_dataclass(kind) else self._of_pydantic(kind)
        return {"$ref": f"#/$defs/{name}"}

    def _of_pydantic(self, kind: Any) -> dict[str, Any]:
        """The schema of a section of the build profile, as it is written: every key is there."""
        schema: dict[str, Any] = kind.model_json_schema(mode="serialization", ref_template="#/$defs/{model}")
        self.definitions |= schema.pop("$defs", {})
        return {**schema, "required": list(schema["properties"]), "additionalProperties": False}


def _key_and_type(one: Any, kind: Any) -> tuple[str, Any]:
    """The key of a field in JSON: its name, or another one that it says."""
    aliases = [extra.alias for extra in get_args(kind)[1:] if getattr(extra, "alias", None)]
    return str(aliases[0] if aliases else one.metadata.get(KEY, one.name)), kind


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """One of several types, in short where each is a plain one."""
    flat = [inner for one in schemas for inner in (one["anyOf"] if list(one) == ["anyOf"] else [one])]
    if all(list(one) == ["type"] for one in flat):
        return {"type": [one["type"] for one in flat]}
    return {"anyOf": flat}
