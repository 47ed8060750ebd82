"""Normalizations of exported programs are found, functions included, and looked at like modules."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812

from tests.export.modules import trained  # noqa: E402
from trtnorm_cli.errors import RewriteError  # noqa: E402
from trtnorm_cli.export.child.norms.accidents.program import check_program, program_rows  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore::FutureWarning")]


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn, self.group, self.drop = nn.BatchNorm2d(8), nn.GroupNorm(2, 8), nn.Dropout(0.5)
        self.instance, self.rms = nn.InstanceNorm2d(8, track_running_stats=True), nn.RMSNorm(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.group(self.instance(self.bn(self.conv(x)))))
        return self.rms(F.layer_norm(F.layer_norm(x, (6,)), (6, 6)))


def program(model: nn.Module) -> torch.export.ExportedProgram:
    return torch.export.export(model, (torch.randn(2, 3, 8, 8),))


def refused(made: torch.export.ExportedProgram) -> RewriteError:
    with pytest.raises(RewriteError) as caught:
        check_program(made)
    return caught.value


def test_every_call_is_a_row():
    rows = {row.path: row for row in program_rows(program(trained(Mixed())))}
    assert {path: (row.type, row.family, row.shape) for path, row in rows.items()} == {
        "bn": ("torch.nn.BatchNorm2d", "batch", (8,)),
        "instance": ("torch.nn.InstanceNorm2d", "instance", (8,)),
        "group": ("torch.nn.GroupNorm", "group", (8,)),
        "layer_norm": ("layer_norm in Mixed", "layer", (6,)),
        "layer_norm#2": ("layer_norm in Mixed", "layer", (6, 6)),
        "rms": ("torch.nn.RMSNorm", "rms", (6,)),
    }
    assert (rows["bn"].statistics, rows["bn"].epsilon, rows["bn"].momentum, rows["bn"].affine) == ("tracked", 1e-5, 0.1, True)
    assert (rows["group"].groups, rows["layer_norm"].affine) == (2, False)


def test_statistics_are_those_of_the_program():
    model = trained(Mixed())
    (row,) = [row for row in program_rows(program(model)) if row.path == "bn"]
    assert row.mean == (float(model.bn.running_mean.min()), float(model.bn.running_mean.max()))


def test_a_program_without_accidents():
    accidents = check_program(program(trained(Mixed())))
    assert [(accident.kind, accident.module) for accident in accidents] == [("instance-running-statistics", "instance")]


def test_a_program_exported_in_training_mode_is_refused():
    error = refused(program(trained(Mixed()).train()))
    assert error.where.splitlines()[1:] == [
        "bn: the program was exported in training mode: it normalizes with the data's own mean and variance",
        "instance: the program was exported in training mode: it normalizes with the data's own mean and variance",
        "drop: the program was exported in training mode: it drops 50% of its values at random",
    ]
    assert error.hint.splitlines() == [
        "call eval() on the model before torch.export.export, and save the program again",
        "or export it as it is: --accept stays-in-training --accept dropout-active",
    ]
    assert check_program(program(trained(Mixed()).train()), ("stays-in-training", "dropout-active"))


def test_untouched_and_missing_statistics():
    assert ("untouched-statistics", "bn") in [(a.kind, a.module) for a in check_program(program(Mixed().eval()))]
    model = nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False)).eval()
    (accident,) = check_program(program(model))
    assert (accident.kind, accident.module) == ("batch-statistics", "0")


@pytest.mark.parametrize(
    ("name", "says"), [("bn.running_var", "bn: running_var: nan at [3]"), ("conv.bias", "conv: bias: nan at [3]")]
)
def test_values_that_are_not_finite(name, says):
    model = trained(Mixed())
    with torch.no_grad():
        model.get_submodule(name.split(".")[0]).state_dict()[name.split(".")[1]][3] = float("nan")
    assert refused(program(model)).where.startswith(says)


def test_a_program_survives_a_round_trip_through_a_file(tmp_path):
    torch.export.save(program(trained(Mixed())), tmp_path / "p.pt2")
    assert len(program_rows(torch.export.load(tmp_path / "p.pt2"))) == 6
