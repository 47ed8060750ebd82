"""The build worker, with plugin creators written in Python: what the parser hands them goes to ``fields.json``.

    python tests/tensorrt/plugin_worker.py WORK_FOLDER [EVENTS_FD]

``creators.json`` in the work folder says which to register: name, version, namespace, and fields with their types. No plugin is
created: TensorRT for RTX 1.7 aborts on one that is written in Python.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorrt_rtx as trt

from trtnorm_cli.tensorrt.child.worker import main

FOLDER = Path(sys.argv[1])
_NUMPY = {"FLOAT32": np.float32, "INT32": np.int32}


class Creator(trt.IPluginCreatorV3One):
    def __init__(self, entry: dict[str, Any]) -> None:
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_version, self.plugin_namespace = entry["name"], entry["version"], entry["namespace"]
        fields = [
            trt.PluginField(name, np.array([], _NUMPY[kind]), getattr(trt.PluginFieldType, kind))
            for name, kind in entry["fields"].items()
        ]
        self.field_names = trt.PluginFieldCollection(fields)

    def create_plugin(self, name: str, fields: Any, phase: Any) -> None:
        given = {field.name: [field.type.name, np.array(field.data).tolist()] for field in fields}
        with (FOLDER / "fields.json").open("a") as stream:
            stream.write(json.dumps({"node": name, "phase": phase.name, "fields": given}) + "\n")


CREATORS = [Creator(entry) for entry in json.loads((FOLDER / "creators.json").read_text())]
for creator in CREATORS:
    assert trt.get_plugin_registry().register_creator(creator, creator.plugin_namespace)
main()
