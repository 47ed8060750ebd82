"""Normalization modules are found, also those of other packages, and described."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.export import modules  # noqa: E402
from trtnorm_cli.export.child.norms.norm_modules import norms  # noqa: E402
from trtnorm_cli.export.child.norms.norm_table import norm_rows  # noqa: E402

pytestmark = pytest.mark.torch


def families(model: nn.Module) -> dict[str, str]:
    return {norm.path: norm.family for norm in norms(model)}


@pytest.mark.parametrize(
    ("module", "family"),
    [
        (nn.BatchNorm1d(4), "batch"),
        (nn.BatchNorm3d(4), "batch"),
        (nn.SyncBatchNorm(4), "batch"),
        (nn.InstanceNorm2d(4), "instance"),
        (nn.GroupNorm(2, 4), "group"),
        (nn.LayerNorm(4), "layer"),
        (nn.RMSNorm(4), "rms"),
        (nn.LocalResponseNorm(3), "local response"),
    ],
)
def test_classes_of_torch_and_their_subclasses_are_recognised(module, family):
    assert families(nn.Sequential(module)) == {"0": family}
    subclass = type("Special", (type(module),), {})
    module.__class__ = subclass
    assert families(nn.Sequential(module)) == {"0": family}


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("LlamaRMSNorm", "rms"),
        ("T5LayerNorm", "rms"),
        ("BertLayerNorm", "layer"),
        ("LayerNorm2d", "layer"),
        ("SimplifiedLayerNorm", "rms"),
        ("GroupNormWithAct", "group"),
        ("BatchNormAct2d", "batch"),
        ("GRN", "global response"),
        ("GlobalResponseNorm", "global response"),
        ("PixelNorm", "other"),
        ("EvoNorm2dS0", "other"),
        ("BN", "batch"),
    ],
)
def test_classes_of_other_packages_are_recognised_by_name(name, family):
    module = modules.named(name)(4)
    (found,) = norms(nn.Sequential(module))
    assert (found.family, found.how) == (family, "name")


@pytest.mark.parametrize("name", ["Normalize", "NormalNoise", "Denormalizer", "Linear", "Bin", "Chain", "Encoder", "Norman"])
def test_other_modules_are_not(name):
    assert norms(nn.Sequential(modules.named(name)(4))) == []


def test_a_module_around_a_norm_is_not_counted_as_well():
    class PreNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.body = nn.LayerNorm(4), nn.Linear(4, 4)

    class AdaLayerNorm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 8)

    assert families(nn.Sequential(PreNorm(), AdaLayerNorm())) == {"0.norm": "layer"}


def test_weight_normalization_is_no_normalization_of_the_data():
    assert norms(nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))) == []


def test_a_frozen_batchnorm_is_recognised_by_its_buffers():
    (row,) = norm_rows(modules.trained(nn.Sequential(modules.FrozenBatchNorm(4))))
    assert (row.family, row.recognised_by, row.statistics) == ("frozen batch", "state", "frozen")
    assert (row.shape, row.epsilon, row.affine) == ((4,), None, True)


def test_a_batchnorm_of_another_class_is_recognised_by_its_statistics():
    module = modules.named("Custom")(4)
    module.register_buffer("running_mean", torch.zeros(4))
    module.register_buffer("running_var", torch.ones(4))
    (found,) = norms(nn.Sequential(module))
    assert (found.family, found.how) == ("batch", "state")


def test_a_module_used_twice_stands_once():
    shared = nn.LayerNorm(4)
    assert list(families(nn.Sequential(shared, nn.Linear(4, 4), shared))) == ["0"]


class TestRows:
    def test_a_batchnorm(self):
        module = nn.BatchNorm2d(3, eps=1e-3, momentum=0.2).eval()
        with torch.no_grad():
            module.running_mean.copy_(torch.tensor([-1.0, 0.0, 2.0]))
            module.running_var.copy_(torch.tensor([0.5, 1.0, 4.0]))
            module.num_batches_tracked.fill_(7)
        (row,) = norm_rows(nn.Sequential(module))
        assert (row.path, row.type, row.shape, row.groups) == ("0", "torch.nn.BatchNorm2d", (3,), None)
        assert (row.epsilon, row.momentum, row.affine, row.training) == (1e-3, 0.2, True, False)
        assert (row.dtypes, row.statistics, row.mean, row.variance) == (("float32",), "tracked", (-1.0, 2.0), (0.5, 4.0))

    @pytest.mark.parametrize(
        ("module", "statistics"),
        [
            (nn.BatchNorm2d(3), "untouched"),
            (nn.BatchNorm2d(3, track_running_stats=False), "none"),
            (nn.InstanceNorm2d(3), "none"),
            (nn.InstanceNorm2d(3, track_running_stats=True), "untouched"),
            (nn.LayerNorm(3), "none"),
        ],
    )
    def test_statistics(self, module, statistics):
        assert norm_rows(module)[0].statistics == statistics

    def test_groups_shapes_and_types(self):
        group, layer, plain = norm_rows(nn.Sequential(nn.GroupNorm(2, 6), nn.LayerNorm((3, 5)).half(), nn.InstanceNorm2d(4)))
        assert (group.shape, group.groups) == ((6,), 2)
        assert (layer.shape, layer.dtypes) == ((3, 5), ("float16",))
        assert (plain.affine, plain.dtypes, plain.momentum) == (False, (), 0.1)

    def test_an_epsilon_of_another_name(self):
        module = modules.named("LlamaRMSNorm")(4)
        module.variance_epsilon = 1e-6
        assert norm_rows(nn.Sequential(module))[0].epsilon == 1e-6

    def test_uninitialised_and_meta_modules_have_no_ranges(self):
        with torch.device("meta"):
            meta = nn.BatchNorm2d(3)
        lazy, without_values = norm_rows(nn.Sequential(nn.LazyBatchNorm2d(), meta))
        assert (lazy.mean, without_values.mean) == (None, None)

    def test_the_rows_are_json(self):
        (row,) = norm_rows(nn.Sequential(nn.BatchNorm2d(2)))
        entry = json.loads(json.dumps(row.to_json()))
        assert entry["type"] == "torch.nn.BatchNorm2d"
        assert entry["shape"] == [2]
