"""The JSON that commands print: each output has a name, and says the version of its form under ``format``."""

from __future__ import annotations

import json
from typing import Any

# The version of each output's form. It changes when a reader of the old one would misread the new one. The records of a
# manifest, an export and a batch have theirs themselves.
FORMATS = {
    "inspect-model": 1,
    "inspect-network": 1,
    "inspect-engine": 1,
    "inspect-module": 1,
    "rewrite": 1,
    "compare": 1,
    "diff": 1,
    "init": 1,
    "doctor": 1,
    "rules": 1,
    "rule": 1,
    "error": 1,
}
# The outputs of `inspect`, by the description that they are made from.
DESCRIPTIONS = {
    "ModelDescription": "inspect-model",
    "NetworkDescription": "inspect-network",
    "EngineDescription": "inspect-engine",
    "ModuleDescription": "inspect-module",
    "ExportRecord": "export",
}


def json_text(name: str, values: dict[str, Any]) -> str:
    """The output ``name`` as text, with the version of its form first."""
    version = {"format": FORMATS[name]} if name in FORMATS else {}
    return json.dumps({**version, **values}, indent=2)
