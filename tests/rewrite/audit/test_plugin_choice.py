"""Normalizations that should be a plugin and cannot: errors with node and reason, never silently native."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import loaded, operators, parse, random
from tests.rewritings import rewrite
from trtnorm_cli.errors import RewriteError
from trtnorm_cli.profile.rewriting import GROUP_NORM_TO_PLUGIN, INSTANCE_NORM_TO_PLUGIN, Implementations, RewriteSettings
from trtnorm_cli.rewrite.rewriting import Rewriting

ALL = Implementations("plugin")


def model() -> onnx.ModelProto:
    """An InstanceNormalization that can be a plugin, and one of rank 3 that cannot."""
    return parse(
        "g (float[N, 3, H, W] x, float[N, 3, L] t) => (float[N, 3, H, W] y, float[N, 3, L] u) {"
        " [image] y = InstanceNormalization(x, s, b) [sequence] u = InstanceNormalization(t, s, b) }",
        {"s": random(3), "b": random(3)},
    )


def rewritten(tmp_path, choice: Implementations, source: onnx.ModelProto | None = None, **settings: object) -> Rewriting:
    return rewrite(loaded(source or model(), tmp_path), settings=RewriteSettings(instance_norm=choice, **settings))


def test_what_cannot_be_a_plugin_is_an_error(tmp_path):
    with pytest.raises(RewriteError) as caught:
        rewritten(tmp_path, ALL).require_all_checks_passed()
    error = caught.value
    assert error.exit_code == 4
    assert error.summary == "1 normalization(s) cannot be the plugin that the build profile asks for; nothing was written"
    assert "InstanceNormalization sequence: t has rank 3, the plugin takes rank 4 and 5" in error.where
    assert error.hint == (
        "leave them to TensorRT's own layers in the build profile:\n"
        "instance_norm:\n  default: plugin\n  nodes:\n    sequence: native"
    )


def test_the_way_out_works(tmp_path):
    rewriting = rewritten(tmp_path, Implementations("plugin", {"sequence": "native"}))
    rewriting.require_all_checks_passed()
    assert operators(rewriting.model) == ["InstanceNormalization_TRT", "InstanceNormalization"]


def in_pieces(last: str) -> onnx.ModelProto:
    return parse(
        "g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { m = ReduceMean <axes=[2, 3]> (x) d = Sub(x, m) q = Mul(d, d)"
        " v = ReduceMean <axes=[2, 3]> (q) e = Add(v, eps) r = Sqrt(e) n = Div(d, r) k = Mul(n, s)"
        f" [last] y = {last}(k, b) }}",
        {"s": random(3, 1, 1), "b": random(3, 1, 1), "eps": np.array(1e-5, np.float32)},
    )


def test_a_normalization_in_pieces(tmp_path):
    for choice in (ALL, Implementations("native", {"last": "plugin"})):
        rewriting = rewritten(tmp_path, choice, in_pieces("Add"))
        rewriting.require_all_checks_passed()
        assert operators(rewriting.model) == ["InstanceNormalization_TRT"]


def test_a_node_at_which_nothing_ends(tmp_path):
    (unmet,) = rewritten(tmp_path, Implementations("native", {"last": "plugin"}), in_pieces("Max")).unmet
    assert (unmet.node, unmet.reason) == ("last", "no InstanceNormalization was found to end there")


def test_native_is_the_default(tmp_path):
    rewriting = rewritten(tmp_path, Implementations())
    rewriting.require_all_checks_passed()
    assert operators(rewriting.model) == ["InstanceNormalization", "InstanceNormalization"]
    assert len(rewriting.model.functions) == 0


def test_a_rule_that_is_left_out_is_no_excuse(tmp_path):
    choice = Implementations("native", {"image": "plugin"})
    (unmet,) = rewritten(tmp_path, choice, skip=(INSTANCE_NORM_TO_PLUGIN,)).unmet
    assert (unmet.node, unmet.reason) == ("image", "the rule instance-norm-to-plugin is left out by rules.skip")


def test_a_change_that_cannot_be_proved_is_an_error(tmp_path):
    """The float64 oracle has no operator Odd, so that the type of its output is not known either."""
    source = parse(
        "g (float[N, 3, H, W] x) => (float[N, 3, H, W] y) { a = Odd(x) [in0] y = InstanceNormalization(a, s, b) }",
        {"s": random(3), "b": random(3)},
    )
    (unmet,) = rewritten(tmp_path, ALL, source).unmet
    assert (unmet.node, unmet.reason) == ("in0", "type or rank of a, the data of in0, is not known")


def test_the_user_is_told_what_was_not_run(tmp_path):
    rewriting = rewritten(tmp_path, Implementations("native", {"image": "plugin"}))
    assert rewriting.warnings == (
        "image becomes the plugin InstanceNormalization_TRT: checks and comparisons run what it is defined to compute, "
        "not the plugin itself; NVIDIA's calls cuDNN, which TensorRT does not support on Blackwell and later GPUs",
    )


def test_a_wish_that_has_no_effect_is_told(tmp_path):
    rewriting = rewritten(tmp_path, Implementations("native", {"image": "plugin"}), group_norm=ALL)
    assert rewriting.notes == (
        "the build profile says group_norm: plugin, and the model has no GroupNormalization node to be one",
    )
    assert rewritten(tmp_path, Implementations()).notes == ()


@pytest.mark.parametrize("skip", [(), (GROUP_NORM_TO_PLUGIN,)])
def test_group_norms(tmp_path, skip):
    source = parse(
        "g (float[N, 6, 4, 4] x) => (float[N, 6, 4, 4] y) { [gn0] y = GroupNormalization <num_groups=3> (x, s, b) }",
        {"s": random(6), "b": random(6)},
        opset=21,
    )
    settings = RewriteSettings(group_norm=ALL, skip=skip)
    with pytest.raises(RewriteError) as caught:
        rewrite(loaded(source, tmp_path), settings=settings).require_all_checks_passed()
    reason = "the batch of x is N, the plugin wants it fixed" if not skip else "left out by rules.skip"
    assert reason in caught.value.where
    assert caught.value.hint.endswith("group_norm:\n  default: plugin\n  nodes:\n    gn0: native")
