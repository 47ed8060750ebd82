"""BatchNorm as the PyTorch exporters write it today, compared with PyTorch itself."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from tests.rewritings import rewrite
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.rewrite.rewriting import Rewriting

torch = pytest.importorskip("torch")
nn = torch.nn
functional = torch.nn.functional

pytestmark = [pytest.mark.torch, pytest.mark.slow]


class StandardisedConvolution(nn.Module):
    """A weight that is normalized for each output channel, as in timm's ResNetV2."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        weight = self.conv.weight.reshape(1, 8, -1)
        weight = functional.batch_norm(weight, None, None, weight=torch.full((8,), 0.7), training=True, momentum=0.0)
        return functional.conv2d(x, weight.reshape_as(self.conv.weight), self.conv.bias)


def with_statistics(norm):
    """Statistics as after training."""
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return norm


MODULES = {
    "batchnorm alone": lambda: with_statistics(nn.BatchNorm2d(3)),
    "convolution and batchnorm": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), with_statistics(nn.BatchNorm2d(8)), nn.ReLU()),
    "no affine": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), with_statistics(nn.BatchNorm2d(8, affine=False))),
    "no tracked statistics": lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8, track_running_stats=False)),
    "tracked instance norm": lambda: nn.Sequential(
        nn.Conv2d(3, 8, 3), with_statistics(nn.InstanceNorm2d(8, affine=True, track_running_stats=True))
    ),
    "standardised weight": StandardisedConvolution,
}
LEFT = {
    "batchnorm alone": ["Mul", "Add"],
    "convolution and batchnorm": ["Conv", "Relu"],
    "no affine": ["Conv"],
    "no tracked statistics": None,
    "tracked instance norm": ["Conv"],
    "standardised weight": ["Conv"],
}


def exported(module, x, path: Path, dynamo: bool, dynamic: bool, training: bool = False) -> Path:
    module.train(training)
    options: dict = {"input_names": ["x"], "output_names": ["y"], "dynamo": dynamo, "opset_version": 18}
    if dynamo:
        options |= {"external_data": False, "verbose": False}
        options |= {"dynamic_shapes": ({0: torch.export.Dim.DYNAMIC},)} if dynamic else {}
    else:
        options |= {"training": torch.onnx.TrainingMode.PRESERVE}
        options |= {"dynamic_axes": {"x": {0: "N"}}} if dynamic else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (x,), str(path), **options)
    return path


def assert_computes(rewriting: Rewriting, x, wanted) -> None:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(rewriting.model.SerializeToString())
    (got,) = session.run(None, {"x": x.numpy()})
    assert np.max(np.abs(got - wanted.detach().numpy())) < 1e-4


@pytest.mark.parametrize("dynamic", [True, False], ids=["dynamic", "static"])
@pytest.mark.parametrize("dynamo", [True, False], ids=["dynamo", "torchscript"])
@pytest.mark.parametrize("name", MODULES)
def test_what_the_exporters_write(tmp_path, name, dynamo, dynamic):
    if not dynamo and dynamic and name in ("no tracked statistics", "tracked instance norm"):
        pytest.skip("TorchScript refuses to export it with a dynamic batch")
    torch.manual_seed(0)
    module, x = MODULES[name]().eval(), torch.randn(2, 3, 9, 9)
    rewriting = rewrite(load_model(exported(module, x, tmp_path / "model.onnx", dynamo, dynamic)))
    rewriting.require_all_checks_passed()
    left = [node.op_type for node in rewriting.model.graph.node]
    assert "BatchNormalization" not in left
    assert LEFT[name] is None or left == LEFT[name]
    assert rewriting.warnings == ()
    assert_computes(rewriting, x, module(x))


def test_a_module_in_training_mode_keeps_its_meaning_and_is_warned_of(tmp_path):
    torch.manual_seed(0)
    module, x = MODULES["convolution and batchnorm"](), torch.randn(2, 3, 9, 9)
    rewriting = rewrite(load_model(exported(module, x, tmp_path / "model.onnx", False, True, training=True)))
    rewriting.require_all_checks_passed()
    assert "exported without model.eval()" in rewriting.warnings[0]
    assert_computes(rewriting, x, module.train()(x))
