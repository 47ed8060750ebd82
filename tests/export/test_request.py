"""Requests to the export process come back from their files as they were written."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtnorm_cli.evaluate.tensor_files import TensorFile
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.export.request import (
    ExportRequest,
    InspectRequest,
    ProfileText,
    Request,
    RunRequest,
    load_request,
    save_request,
)
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.profile.model import BuildProfile, Tolerance
from trtnorm_cli.target import Target

MODEL = Target("file", "model.py", "Net.make")
OPTIONS = ExportOptions("dynamo", 21, weights=Path("w.safetensors"), strict=False, accepted=("lazy-module",))
PROFILE = ProfileText("dims: {N: 4}\n", "p.yaml")


@pytest.mark.parametrize("request_", [
    ExportRequest(MODEL, OPTIONS, 20, PROFILE),
    ExportRequest(MODEL, ExportOptions(), 21),
    RunRequest(MODEL, OPTIONS, {"default min": {"x": TensorFile("in0-0", "float32", (2, 3))}}, 300.0),
    InspectRequest(Target("module", "torch.nn", "Identity"), OPTIONS),
])  # fmt: skip
def test_a_request_is_read_as_it_was_written(tmp_path: Path, request_: Request):
    save_request(request_, tmp_path)
    assert load_request(tmp_path) == request_


def test_a_profile_keeps_its_file_and_lines(tmp_path: Path):
    path = tmp_path / "p.yaml"
    path.write_text("# sizes\ndims:\n  N: {min: 1, opt: 2, max: 8}\n")
    profile = load_profile(path)
    read = ProfileText.of(profile).parse()
    assert read == profile
    assert read.positions.where(("dims", "N")) == profile.positions.where(("dims", "N")) == f"{path}:3: dims.N"


def test_a_profile_without_a_file_is_written_down():
    profile = BuildProfile(tolerances={"y\u00e9": Tolerance(atol=1e-05)})
    assert ProfileText.of(profile).parse() == profile
