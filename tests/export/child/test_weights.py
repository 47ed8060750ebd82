"""``--weights`` loads what fits, says what it did, and refuses what does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import save_file  # noqa: E402
from torch import nn  # noqa: E402

from tests.export.modules import trained  # noqa: E402
from trtnorm_cli.errors import ModelError, TrtnormError, UsageProblem  # noqa: E402
from trtnorm_cli.export.child.weights import load_weights, renaming  # noqa: E402
from trtnorm_cli.records.export import LoadedWeights  # noqa: E402

pytestmark = pytest.mark.torch


def model() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))


def weights(seed: int = 1) -> dict[str, torch.Tensor]:
    torch.manual_seed(seed)
    return trained(model(), seed).state_dict()


def prefixed(prefix: str) -> dict[str, torch.Tensor]:
    return {prefix + name: value for name, value in weights().items()}


def saved(content: object, path: Path) -> Path:
    torch.save(content, path)
    return path


def equal(module: nn.Module, expected: dict[str, torch.Tensor]) -> bool:
    own = module.state_dict()
    return own.keys() == expected.keys() and all(torch.equal(own[name], value) for name, value in expected.items())


def refusal(module: nn.Module, path: Path, strict: bool = True) -> TrtnormError:
    with pytest.raises(TrtnormError) as caught:
        load_weights(module, path, strict)
    return caught.value


def test_safetensors(tmp_path):
    save_file(weights(), tmp_path / "w.safetensors")
    target = model()
    done = load_weights(target, tmp_path / "w.safetensors")
    assert equal(target, weights())
    assert (done.file, done.loaded, done.missing, done.unexpected, done.notes) == ("w.safetensors", 7, (), (), ())
    assert LoadedWeights.load(json.loads(json.dumps(done.to_json()))) == done


@pytest.mark.parametrize(
    ("content", "notes"),
    [
        (lambda: weights(), ()),
        (lambda: {"state_dict": weights(), "epoch": 3}, ("took 'state_dict' of the checkpoint",)),
        (
            lambda: {"model": weights(), "optimizer": {"state": {0: {"step": torch.ones(1)}}}},
            ("took 'model' of the checkpoint",),
        ),
        (lambda: {"generator": weights()}, ("took 'generator' of the checkpoint",)),
        (
            lambda: {"model": {"state_dict": weights()}},
            ("took 'model' of the checkpoint", "took 'state_dict' of the checkpoint"),
        ),
        (
            lambda: {"state_dict_ema": weights(2), "state_dict": weights()},
            ("took 'state_dict' of the checkpoint, not state_dict_ema",),
        ),
        (lambda: prefixed("module."), ("took the prefix 'module.' off every name",)),
        (
            lambda: prefixed("module.model."),
            ("took the prefix 'module.' off every name", "took the prefix 'model.' off every name"),
        ),
        (lambda: prefixed("_orig_mod."), ("took '_orig_mod.', which torch.compile writes, out of the names",)),
    ],
)
def test_what_training_scripts_save(tmp_path, content, notes):
    target = model()
    done = load_weights(target, saved(content(), tmp_path / "w.pt"))
    assert equal(target, weights())
    assert done.notes == notes


def test_a_prefix_that_the_model_has_itself_stays(tmp_path):
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model()

    target = Wrapped()
    assert load_weights(target, saved(prefixed("model."), tmp_path / "w.pt")).notes == ()
    assert equal(target.model, weights())


def test_several_sets_without_a_usual_name_are_refused(tmp_path):
    error = refusal(model(), saved({"generator": weights(), "discriminator": weights(2)}, tmp_path / "w.pt"))
    assert (type(error), error.exit_code) == (UsageProblem, 2)
    assert error.summary == "the checkpoint holds several sets of weights: generator, discriminator"


def test_a_whole_pickled_module_is_refused(tmp_path):
    error = refusal(model(), saved(model(), tmp_path / "w.pt"))
    assert error.summary.startswith("the checkpoint cannot be read as tensors alone")


def test_parts_named_by_an_index(tmp_path):
    names = list(weights())
    for number, part in enumerate((names[:3], names[3:])):
        save_file({name: weights()[name] for name in part}, tmp_path / f"part{number}.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: f"part{int(name in names[3:])}.safetensors" for name in names}}))
    target = model()
    assert load_weights(target, index).loaded == 7
    assert equal(target, weights())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "this is not an index of weights"),
        ("{}", "this is not an index of weights"),
        ('{"weight_map": {"a": "../w.safetensors"}}', "the index names files that are not beside it"),
    ],
)
def test_an_index_that_is_none(tmp_path, text, says):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(text)
    assert says in refusal(model(), index).summary


def test_missing_and_unexpected_names_are_listed_and_refused(tmp_path):
    content = weights()
    content["head.weight"] = content.pop("0.weight")
    error = refusal(model(), saved(content, tmp_path / "w.pt"))
    assert (type(error), error.exit_code) == (ModelError, 3)
    assert error.summary == "the weights do not fit the model: 1 missing, 1 not in the model"
    assert error.where.splitlines()[1:] == ["missing in the file: 0.weight", "not in the model: head.weight"]
    assert error.hint == "--no-strict loads what fits and leaves the rest as the callable made it"


def test_no_strict_loads_what_fits(tmp_path):
    content = weights()
    content["head.weight"] = content.pop("0.weight")
    target = model()
    kept = target[0].weight.clone()
    done = load_weights(target, saved(content, tmp_path / "w.pt"), strict=False)
    assert (done.loaded, done.missing, done.unexpected) == (6, ("0.weight",), ("head.weight",))
    assert torch.equal(target[0].weight, kept)
    assert torch.equal(target[1].running_mean, weights()["1.running_mean"])


def test_a_renamed_prefix_is_recognised(tmp_path):
    error = refusal(model(), saved(prefixed("backbone."), tmp_path / "w.pt"), strict=False)
    assert error.summary == "none of the 7 names in the file is one of the model's"
    assert error.hint.splitlines() == [
        "the file's backbone.* looks like the model's * (6 names): rename them in the file",
        "give the weights of this model",
    ]


def test_renaming_needs_more_than_one_name():
    assert renaming(["encoder.0.weight", "encoder.0.bias"], ["body.0.weight", "body.0.bias"]) == (
        "the file's body.* looks like the model's encoder.* (2 names): rename them in the file"
    )
    assert renaming(["a.weight"], ["b.weight"]) is None
    assert renaming([], ["b.weight"]) is None


@pytest.mark.parametrize("strict", [True, False])
def test_other_shapes_are_always_refused_with_both(tmp_path, strict):
    path = saved(trained(nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16))).state_dict(), tmp_path / "w.pt")
    error = refusal(model(), path, strict)
    assert (error.summary, error.exit_code) == ("the weights have other shapes than the model: 6 tensors", 3)
    assert error.where.splitlines()[1] == "0.weight is [16, 3, 3, 3] in the file and [4, 3, 3, 3] in the model"


def test_what_pytorch_refuses_otherwise_is_passed_on(tmp_path):
    path = saved(dict(nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True)).state_dict()), tmp_path / "w.pt")
    error = refusal(nn.Sequential(nn.InstanceNorm2d(4)), path)
    assert error.summary == "PyTorch refuses the weights"
    assert "Unexpected running stats buffer(s)" in error.where


def test_other_types_are_converted_and_said(tmp_path):
    half = {name: value.half() if value.is_floating_point() else value for name, value in weights().items()}
    target = model()
    done = load_weights(target, saved(half, tmp_path / "w.pt"))
    assert done.notes == ("converted 6 tensors from float16 to float32",)
    assert target[0].weight.dtype == torch.float32


def test_tied_weights_are_not_missing(tmp_path):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

    path = saved({"embedding.weight": torch.ones(5, 3)}, tmp_path / "w.pt")
    assert load_weights(Tied(), path).missing == ()


def test_a_model_on_the_meta_device_gets_the_tensors_of_the_file(tmp_path):
    with torch.device("meta"):
        target = model()
    load_weights(target, saved(weights(), tmp_path / "w.pt"))
    assert equal(target, weights())


def test_lazy_modules_get_their_shapes_from_the_file(tmp_path):
    target = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d())
    load_weights(target, saved(weights(), tmp_path / "w.pt"))
    assert equal(target, weights())


def test_weight_normalization_of_the_older_kind_is_loaded_into_the_newer(tmp_path):
    with pytest.warns(FutureWarning):
        old = nn.utils.weight_norm(nn.Linear(3, 2))
    new = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    load_weights(new, saved(old.state_dict(), tmp_path / "w.pt"))
    assert torch.allclose(new.weight, old.weight)
