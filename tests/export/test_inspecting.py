"""``trtnorm inspect SPEC`` shows a model as the callable left it, with everything that an export would do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from trtnorm_cli.cli import run  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("warm_exports")]

BROKEN = """
import torch

def build():
    norm = torch.nn.BatchNorm2d(3)
    norm.running_var[1] = -1
    return torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), norm)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_what_would_be_refused_is_listed_beside_the_table(here, capsys):
    Path("m.py").write_text(BROKEN)
    assert run(["inspect", "m.py:build"]) == 0
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "BatchNorm2d (3), 1: statistics tracked" in shown
    assert "put right: the model: left in training mode; eval() applied, which changes what these compute: 1" in shown
    assert "REFUSED: 1: running_var: -1 at [1], 1 of 3 values; a variance is never negative" in shown


@pytest.mark.slow
def test_lazy_modules_are_shown_with_their_sizes(here, capsys):
    Path("m.py").write_text(
        "import torch\ndef build():\n    return torch.nn.Sequential(torch.nn.LazyBatchNorm2d()), torch.randn(2, 5, 4, 4)\n"
    )
    assert run(["inspect", "m.py:build", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["normalizations"][0]["shape"] == [5]
    assert found["accidents"][0]["kind"] == "lazy-module"


def test_a_saved_program_shows_functions_too(here, capsys):
    class Net(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.layer_norm(x, (4,))

    torch.export.save(torch.export.export(Net().eval(), (torch.randn(2, 4),)), "p.pt2")
    assert run(["inspect", "p.pt2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(norm["path"], norm["type"], norm["family"]) for norm in found["normalizations"]] == [
        ("layer_norm", "layer_norm in Net", "layer")
    ]
    assert found["not_seen"].startswith("every call of a normalization is listed")


@pytest.mark.slow
def test_a_program_exported_in_training_mode_is_not_exported_further(here, capsys):
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(3))
    torch.export.save(torch.export.export(model.train(), (torch.randn(2, 3, 4, 4),)), "p.pt2")
    assert run(["export", "p.pt2", "-o", "p.onnx"]) == 4
    assert "call eval() on the model before torch.export.export" in capsys.readouterr().err
    assert not Path("p.onnx").exists()
