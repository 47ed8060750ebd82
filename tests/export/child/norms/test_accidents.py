"""Each accident is found, put right where that can be, and said."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations, parametrize  # noqa: E402

from tests.export.modules import FrozenBatchNorm, trained  # noqa: E402
from trtnorm_cli.errors import ModelError, RewriteError, UsageProblem  # noqa: E402
from trtnorm_cli.export.child.norms.accidents import CHECKS, examine, put_right  # noqa: E402
from trtnorm_cli.export.child.norms.accidents.accident import KINDS, Accident  # noqa: E402

pytestmark = pytest.mark.torch


def found(model: nn.Module, *args: object, **options: object) -> list[tuple[str, str, str]]:
    accidents = put_right(model, args or None, **options).accidents
    return [(accident.kind, accident.module, accident.severity) for accident in accidents]


def only(model: nn.Module, **options: object) -> Accident:
    (accident,) = put_right(model, **options).accidents
    return accident


def refused(kind: str, model: nn.Module, *args: object, **options: object) -> RewriteError:
    with pytest.raises(RewriteError) as caught:
        put_right(model, args or None, **options)
    assert caught.value.summary == f"the model cannot be right: {KINDS[kind]}"
    return caught.value


def small() -> nn.Sequential:
    return trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.25)))


def test_a_model_without_accidents_has_none_and_is_not_changed():
    model = small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    right = put_right(model)
    assert (right.module, right.accidents) == (model, ())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


class TestTrainingMode:
    def test_a_model_in_training_mode_is_listed_and_evaluated(self):
        model = small().train()
        accident = only(model)
        assert (accident.kind, accident.module, accident.severity) == ("training-mode", "", "fixed")
        assert str(accident) == "the model: left in training mode; eval() applied, which changes what these compute: 1, 2"
        assert not any(module.training for module in model.modules())

    def test_a_single_submodule_in_training_mode_is_named_by_its_path(self):
        model = nn.Sequential(small(), small())
        model.eval()[1][1].train()
        assert str(only(model)) == ("1.1: left in training mode; eval() applied, which changes what these compute: BatchNorm2d")

    def test_a_submodule_with_others_below_it_is_named_once(self):
        model = nn.Sequential(small(), small()).eval()
        model[1].train()
        assert str(only(model)) == "1: left in training mode; eval() applied, which changes what these compute: 1, 2"

    def test_leaves_that_do_not_care_are_not_listed(self):
        model = small()
        model[0].train()
        assert put_right(model).accidents == ()

    def test_keep_training_lists_what_each_module_does(self):
        model = small().train()
        right = put_right(model, keep_training=True)
        assert [str(accident) for accident in right.accidents] == [
            "1: kept in training mode (--keep-training): it normalizes with the mean and variance of each batch, not with its "
            "running statistics",
            "2: kept in training mode (--keep-training): it drops 25% of its values at random, which no engine does",
        ]
        assert [accident.kind for accident in right.accidents] == ["stays-in-training", "dropout-active"]
        assert model.training
        assert right.batch_statistics_in_training

    def test_a_module_that_refuses_eval_is_named(self):
        class AlwaysOn(nn.Dropout):
            def train(self, mode: bool = True) -> AlwaysOn:
                self.training = True
                return self

        model = nn.Sequential(nn.Linear(2, 2), AlwaysOn(0.5).train())
        accident = put_right(model.eval()).accidents[-1]
        assert (accident.kind, accident.module, accident.severity) == ("dropout-active", "1", "warning")
        assert accident.message.startswith("still in training mode after eval(): a train() of its own prevents it")

    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_the_module_of_an_exported_program_keeps_its_mode(self):
        program = torch.export.export(small(), (torch.randn(2, 3, 8, 8),))
        accident = put_right(program.module()).accidents[0]
        assert (accident.kind, accident.severity) == ("stays-in-training", "warning")
        assert str(accident) == "the model: comes from an exported program, whose mode is that in which it was exported"


class TestStatistics:
    def test_a_batchnorm_without_running_statistics(self):
        accident = only(nn.Sequential(nn.BatchNorm2d(4, track_running_stats=False)).eval())
        assert (accident.kind, accident.module, accident.severity) == ("batch-statistics", "0", "warning")
        assert accident.message == (
            "has no running statistics: it normalizes with the mean and variance of each batch, so that a result depends on "
            "what else is in the batch"
        )
        assert accident.hint == "train with track_running_stats=True; or use InstanceNorm, where the batch is always 1"

    def test_untouched_running_statistics(self):
        accident = only(nn.Sequential(nn.BatchNorm2d(4)).eval())
        assert (accident.kind, accident.severity) == ("untouched-statistics", "warning")
        assert accident.message == (
            "running statistics are untouched: mean 0 and variance 1 everywhere, and no batch was ever counted"
        )

    @pytest.mark.parametrize("name", ["running_mean", "running_var", "num_batches_tracked"])
    def test_statistics_that_anything_reached_are_not_untouched(self, name):
        model = nn.Sequential(nn.BatchNorm2d(4)).eval()
        getattr(model[0], name).add_(1)
        assert put_right(model).accidents == ()

    def test_an_instance_norm_with_running_statistics(self):
        accident = only(trained(nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True))))
        assert (accident.kind, accident.severity) == ("instance-running-statistics", "warning")
        assert accident.message == (
            "uses running statistics outside of training, as a BatchNorm does, and not those of each image"
        )

    def test_untouched_statistics_of_an_instance_norm(self):
        model = nn.Sequential(nn.InstanceNorm2d(4, track_running_stats=True)).eval()
        assert [kind for kind, _, _ in found(model)] == ["untouched-statistics", "instance-running-statistics"]


class TestValues:
    @pytest.mark.parametrize(
        ("module", "name", "value", "says"),
        [
            ("0", "weight", float("nan"), "0: weight: nan at [1, 0, 0, 0], 27 of 108 values"),
            ("0", "bias", float("inf"), "0: bias: inf at [1], 1 of 4 values"),
            ("1", "weight", float("-inf"), "1: weight: -inf at [1], 1 of 4 values"),
            ("1", "running_mean", float("nan"), "1: running_mean: nan at [1], 1 of 4 values"),
            ("1", "running_var", float("inf"), "1: running_var: inf at [1], 1 of 4 values"),
        ],
    )
    def test_a_value_that_is_not_finite_is_refused_with_its_place(self, module, name, value, says):
        model = small()
        with torch.no_grad():
            getattr(model.get_submodule(module), name)[1] = value
        error = refused("not-finite", model)
        assert error.exit_code == 4
        assert error.where == says
        assert error.hint.endswith("or export it as it is: --accept not-finite")

    def test_float16_statistics_that_overflowed(self):
        model = small()
        model[1].running_var[2] = 1e6
        assert refused("not-finite", model.half()).hint.startswith(
            "float16 holds values up to 65504: keep this module in float32"
        )

    def test_a_mask_of_minus_infinity_is_let_pass(self):
        model = small()
        model.register_buffer("mask", torch.full((3, 3), float("-inf")).triu(1))
        model.register_parameter("bias_mask", nn.Parameter(torch.tensor([0.0, float("-inf")]), requires_grad=False))
        assert put_right(model).accidents == ()

    def test_nan_in_a_buffer_of_another_module_is_a_warning(self):
        model = small()
        model.register_buffer("cache", torch.tensor([float("nan")]))
        assert found(model) == [("not-finite", "", "warning")]

    def test_a_negative_variance_is_refused(self):
        model = small()
        model[1].running_var[3] = -0.5
        error = refused("negative-variance", model)
        assert error.where == "1: running_var: -0.5 at [3], 1 of 4 values; a variance is never negative"

    def test_a_zero_variance_in_a_channel_is_a_warning(self):
        model = small()
        model[1].running_var[3] = 0
        accident = only(model)
        assert (accident.kind, accident.severity) == ("zero-variance", "warning")
        assert accident.message == (
            "running_var is 0 in channels 3 (1 of 4): the channel never changed in training, "
            "which multiplies whatever is there by 316"
        )

    def test_zero_variances_everywhere_are_refused(self):
        model = small()
        model[1].running_var.zero_()
        assert refused("zero-variance", model).where == (
            "1: running_var is 0 in channels 0, 1, 2, 3 (4 of 4): no data has this; the statistics were cleared or never set"
        )

    def test_a_zero_variance_without_epsilon_is_refused(self):
        model = small()
        model[1].running_var[0], model[1].eps = 0, 0.0
        error = refused("division-by-zero", model)
        assert error.where == "1: running_var is 0 in channels 0 (1 of 4) and epsilon is 0: a division by 0"

    def test_a_scale_of_zero_is_a_warning(self):
        model = small()
        nn.init.zeros_(model[1].weight)
        accident = only(model)
        assert (accident.kind, accident.severity) == ("zero-scale", "warning")
        assert accident.message == "weight is 0 in every channel: the module gives its bias whatever comes in"

    def test_tensors_without_values_are_refused(self):
        with torch.device("meta"):
            model = nn.Linear(2, 3, bias=False).eval()
        error = refused("no-values", model)
        assert error.where == "the model: weight [3, 2] is on the meta device: it has no values"
        assert "--accept" not in error.hint

    def test_a_refusal_can_be_accepted(self):
        model = small()
        model[1].running_var[3] = -0.5
        accident = only(model, accepted=("negative-variance",))
        assert accident.severity == "warning"
        assert accident.message.endswith("a variance is never negative (accepted)")

    def test_all_refusals_are_listed_at_once(self):
        model = nn.Sequential(*(small() for _ in range(12)))
        with torch.no_grad():
            for block in model:
                block[0].bias[0] = float("nan")
        error = refused("not-finite", model.eval())
        assert error.where.splitlines()[0] == "found:"
        assert error.where.splitlines()[1] == "0.0: bias: nan at [0], 1 of 4 values"
        assert error.where.splitlines()[-1] == "and 4 more"

    def test_examining_lists_what_would_be_refused(self):
        model = small()
        model[1].running_var[3] = -0.5
        (accident,) = examine(model).accidents
        assert (accident.kind, accident.severity) == ("negative-variance", "refused")

    def test_an_unknown_kind_to_accept(self):
        with pytest.raises(UsageProblem, match="there is no accident 'not-finit'; did you mean 'not-finite'"):
            put_right(small(), accepted=("not-finit",))
        with pytest.raises(UsageProblem, match="no-values cannot be accepted"):
            put_right(small(), accepted=("no-values",))


class TestSizes:
    def test_statistics_of_another_length_are_refused(self):
        model = small()
        model[1].running_mean = torch.zeros(16)
        error = refused("parameter-length", model)
        assert error.where == "1: running_mean has 16 values, but weight, bias, running_var have 4"
        assert error.hint.startswith("give every tensor of the module one value a channel")

    def test_a_size_attribute_alone_is_a_warning(self):
        model = small()
        model[1].num_features = 64
        accident = only(model)
        assert (accident.kind, accident.severity) == ("size-attribute", "warning")
        assert accident.message == "num_features is 64, but its parameters have 4 values; PyTorch computes with the parameters"

    def test_groups_that_do_not_divide_the_channels_are_refused(self):
        model = nn.Sequential(nn.GroupNorm(2, 6)).eval()
        model[0].num_groups = 4
        error = refused("group-count", model)
        assert (error.where, error.hint.splitlines()[0]) == (
            "0: num_groups 4 does not divide 6 channels",
            "choose a divisor of 6",
        )

    @pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
    def test_a_weight_that_is_not_of_the_normalized_shape_is_refused(self, kind):
        model = nn.Sequential(kind(6)).eval()
        model[0].weight = nn.Parameter(torch.ones(4))
        assert refused("parameter-length", model).where == "0: weight has shape [4], but normalized_shape is [6]"


def test_sync_batchnorm_is_converted_with_its_values():
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(small(), small())).eval()
    model[1][1] = model[0][1]
    x = torch.randn(2, 3, 8, 8)
    expected, weight = model[0](x), model[0][1].weight
    right = put_right(model)
    assert [str(accident) for accident in right.accidents] == ["0.1: SyncBatchNorm converted to BatchNorm, with its values"]
    assert not any(isinstance(module, nn.SyncBatchNorm) for module in right.module.modules())
    assert isinstance(model[0][1], nn.modules.batchnorm._BatchNorm)
    assert model[0][1] is model[1][1]
    assert model[0][1].weight is weight
    assert torch.equal(model[0](x), expected)


def test_sync_batchnorm_as_the_model_itself_and_without_parameters():
    sync = nn.SyncBatchNorm(4, affine=False, track_running_stats=False).eval()
    right = put_right(sync)
    assert (right.module.affine, right.module.track_running_stats) == (False, False)
    assert [accident.kind for accident in right.accidents] == ["sync-batchnorm", "batch-statistics"]


class TestParametrizations:
    @pytest.mark.parametrize(
        ("wrap", "kind", "says"),
        [
            (parametrizations.weight_norm, "weight-norm", "_WeightNorm folded into weight [4, 3, 3, 3], largest difference 0"),
            (
                parametrizations.spectral_norm,
                "spectral-norm",
                "_SpectralNorm folded into weight [4, 3, 3, 3], largest difference 0",
            ),
            (nn.utils.weight_norm, "weight-norm", "weight_norm folded into weight [4, 3, 3, 3], largest difference 0"),
            (nn.utils.spectral_norm, "spectral-norm", "spectral_norm folded into weight [4, 3, 3, 3], largest difference 0"),
        ],
    )
    @pytest.mark.filterwarnings("ignore::FutureWarning")
    def test_they_are_folded_into_the_weight(self, wrap, kind, says):
        model = nn.Sequential(wrap(nn.Conv2d(3, 4, 3))).eval()
        with torch.no_grad():
            for parameter in model.parameters():  # as a loaded checkpoint would, behind the back of the hooks
                parameter.mul_(1.5)
        x = torch.randn(1, 3, 8, 8)
        expected = model(x)
        accident = only(model)
        assert (accident.kind, accident.module, accident.severity, accident.message) == (kind, "0", "fixed", says)
        assert sorted(model.state_dict()) == ["0.bias", "0.weight"]
        assert not model[0]._forward_pre_hooks
        assert torch.equal(model(x), expected)

    def test_a_model_in_training_mode_is_evaluated_first(self):
        model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 3))).train()
        vector = model[0].parametrizations.weight[0]._u.clone()
        assert [kind for kind, _, _ in found(model)] == ["training-mode", "spectral-norm"]
        again = parametrizations.spectral_norm(nn.Linear(3, 3))
        assert again.parametrizations.weight[0]._u.shape == vector.shape

    def test_spectral_normalization_kept_in_training_is_left(self):
        model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(3, 3))).train()
        assert str(only(model, keep_training=True)) == (
            "0: weight stays computed on each call: _SpectralNorm is in training mode, where it changes on each call"
        )

    def test_a_random_parametrization_is_left(self):
        class Noise(nn.Module):
            def forward(self, weight: torch.Tensor) -> torch.Tensor:
                return weight + torch.randn_like(weight)

        model = nn.Sequential(nn.Linear(3, 3)).eval()
        parametrize.register_parametrization(model[0], "weight", Noise())
        model.eval()
        accident = only(model)
        assert (accident.kind, accident.severity) == ("parametrization-left", "warning")
        assert "Noise gives another value on each call" in accident.message

    def test_a_parametrization_of_ones_own_is_folded(self):
        class Symmetric(nn.Module):
            def forward(self, weight: torch.Tensor) -> torch.Tensor:
                return weight.triu() + weight.triu(1).T

        model = nn.Sequential(nn.Linear(3, 3)).eval()
        parametrize.register_parametrization(model[0], "weight", Symmetric())
        model.eval()
        accident = only(model)
        assert (accident.kind, str(accident)) == (
            "parametrization",
            "0: Symmetric folded into weight [3, 3], largest difference 0",
        )


class TestLazyModules:
    @staticmethod
    def lazy() -> nn.Sequential:
        return nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d())

    def test_they_get_their_sizes_from_the_example_inputs(self):
        model = self.lazy().train()
        right = put_right(model, (torch.randn(2, 3, 8, 8),))
        assert [str(accident) for accident in right.accidents][:2] == [
            "0: became Conv2d, with sizes from the example inputs and initial values, not trained ones",
            "1: became BatchNorm2d, with sizes from the example inputs and initial values, not trained ones",
        ]
        kinds = [accident.kind for accident in right.accidents]
        assert kinds == ["lazy-module", "lazy-module", "training-mode", "untouched-statistics"]
        assert type(model[0]) is nn.Conv2d
        assert int(model[1].num_batches_tracked) == 0

    def test_without_example_inputs_they_are_refused_with_how(self):
        error = refused("lazy-module-uninitialised", self.lazy().eval())
        assert (
            error.where.splitlines()[1] == "0: LazyConv2d gets its sizes from the first input, and there are no example inputs"
        )
        assert error.hint == "let the callable return (model, example_inputs), or run the model once before returning it"

    def test_a_module_that_the_inputs_do_not_reach_is_refused(self):
        class Unused(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.used, self.unused = nn.Linear(3, 3), nn.LazyLinear(3)

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.used(x)

        error = refused("lazy-module-uninitialised", Unused().eval(), torch.randn(1, 3))
        assert error.where == "unused: LazyLinear was not reached by the example inputs and has no sizes"

    def test_example_inputs_that_do_not_fit(self):
        with pytest.raises(ModelError, match="does not take its example inputs, from which lazy modules get their sizes: "):
            put_right(self.lazy().eval(), (torch.randn(3),))


class TestTypes:
    def test_a_float32_norm_in_a_bfloat16_model(self):
        model = small().bfloat16()
        model[1].float()
        accident = only(model)
        assert (accident.kind, accident.severity) == ("mixed-types", "warning")
        assert accident.message == (
            "is float32 in a model that is mostly bfloat16; TensorRT wants one type, so casts are put around it"
        )

    def test_a_norm_of_several_types(self):
        model = small()
        model[1].running_var = model[1].running_var.half()
        assert only(model).message == (
            "holds tensors of several types: weight float32, bias float32, running_mean float32, running_var float16"
        )

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_a_model_of_one_type_is_right(self, dtype):
        assert put_right(small().to(dtype)).accidents == ()


def test_a_frozen_batchnorm_is_checked_like_a_batchnorm():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), FrozenBatchNorm(4)).eval()
    assert found(model) == [("untouched-statistics", "1", "warning")]
    assert put_right(trained(model)).accidents == ()
    model[1].running_var[2] = -1
    assert refused("negative-variance", model).where == "1: running_var: -1 at [2], 1 of 4 values; a variance is never negative"


def test_a_wrapper_is_taken_off():
    model = small()
    right = put_right(nn.DataParallel(model))
    assert right.module is model
    assert [accident.kind for accident in right.accidents] == ["wrapper"]
    assert [str(accident) for accident in right.accidents] == [
        "the model: DataParallel taken off: it computes the same, and puts a prefix before each name"
    ]


def test_a_compiled_model_is_taken_out():
    model = small()
    assert put_right(torch.compile(model)).module is model


def test_every_kind_is_met_in_a_test_of_this_file():
    text = Path(__file__).read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f'"{kind}"' not in text] == []
    assert all(check.__doc__ for check in CHECKS)


def test_the_page_of_accidents_lists_every_kind():
    page = (Path(__file__).parents[4] / "docs" / "norm_accidents.md").read_text(encoding="utf-8")
    table = "\n".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`([a-z-]+)`", table)) == sorted(KINDS)
