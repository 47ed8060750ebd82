"""What a model means, end to end: repairs, policies, what they change, and what later comparisons are made with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, loaded, operators, parse, random
from tests.oracle import evaluate, worst_relative_error
from tests.rewrite.rules.test_matmul_block_weights import product
from tests.rewritings import rewrite
from trtnorm_cli.checkpoint import Checkpoint
from trtnorm_cli.errors import RewriteError
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.rewriting import Rewriting, plan

EVAL = RewriteSettings(training_mode="eval")


def training(weights: dict[str, np.ndarray] | None = None, norms: int = 1) -> onnx.ModelProto:
    steps = " ".join(
        f"c{i} = Conv(x{i}, w{i}) [bn{i}] x{i + 1}, m{i}, v{i} = BatchNormalization <training_mode=1>"
        f" (c{i}, gamma, beta, mu, var)"
        for i in range(norms)
    )
    kernels = {f"w{i}": random(4, 4 if i else 3, 3, 3, seed=i) for i in range(norms)}
    return parse(
        f"g (float[N, 3, 11, 11] x0) => (float[] x{norms}) {{ {steps} }}", {**kernels, **batchnorm(4), **(weights or {})}
    )


def mismatch(count: int = 16, shape: str = "N, 3, 8, 8", channels: int = 64) -> onnx.ModelProto:
    return parse(
        f"g (float[{shape}] a) => (float[] y) {{ [conv] x = Conv(a, w) [bn] y = BatchNormalization(x, gamma, beta, mu, var) }}",
        {"w": random(channels, 3, 3, 3), **batchnorm(count)},
    )


def refused(rewriting: Rewriting) -> RewriteError:
    with pytest.raises(RewriteError) as caught:
        rewriting.require_all_checks_passed()
    assert caught.value.exit_code == 4
    return caught.value


def test_as_written_warns_once_for_all_nodes(tmp_path):
    rewriting = rewrite(loaded(training(norms=3), tmp_path))
    rewriting.require_all_checks_passed()
    (warning,) = rewriting.warnings
    assert warning.startswith("each of 3 nodes (bn0, bn1, bn2) normalizes with the statistics of each batch")
    assert warning.splitlines()[-1] == "training_mode: eval"
    assert "BatchNormalization" not in operators(rewriting.model)
    assert rewriting.meant is None


def test_eval_says_by_how_much_the_results_change(tmp_path):
    rewriting = rewrite(loaded(training(), tmp_path), settings=EVAL)
    rewriting.require_all_checks_passed()
    assert operators(rewriting.model) == ["Conv"]
    text, effect = rewriting.warnings
    assert (
        text
        == "bn0 uses its running statistics, because the build profile says training_mode: eval; the file has training_mode=1"
    )
    assert effect.startswith("training_mode: eval changes the results: x1 by ")
    assert float(effect.split(" by ")[1].split()[0]) > 0.1
    assert effect.endswith(" in L2); 4 draws of random inputs, in ONNX Runtime")
    (measured,) = rewriting.effects
    assert measured.outputs["x1"].relative_max > 0.1


def test_eval_is_compared_with_the_running_statistics(tmp_path):
    rewriting = rewrite(loaded(training(), tmp_path), settings=EVAL)
    assert rewriting.meant is not None
    node = next(n for n in rewriting.meant.graph.node if n.op_type == "BatchNormalization")
    assert (len(node.output), [a.name for a in node.attribute]) == (1, [])
    assert worst_relative_error(rewriting.meant, rewriting.model, {"x0": (2, 3, 11, 11)}) < 1e-6
    assert [c.changes_meaning for c in rewriting.changes] == [True, False]


def test_the_effect_of_a_model_that_onnx_runtime_does_not_run_is_measured_in_float64(tmp_path):
    model = parse(
        "g (bfloat16[2, 4, 5, 5] x) => (bfloat16[] y) { [bn] y, m, v = BatchNormalization <training_mode=1>"
        " (x, gamma, beta, mu, var) }",
        batchnorm(4),
    )
    rewriting = rewrite(loaded(model, tmp_path), settings=EVAL)
    assert any(warning.startswith("training_mode: eval changes the results: y by ") for warning in rewriting.warnings)


def test_refuse(tmp_path):
    rewriting = rewrite(loaded(training(norms=2), tmp_path), settings=RewriteSettings(training_mode="refuse"))
    error = refused(rewriting)
    assert error.summary == "2 normalization(s) would be refused or computed wrongly by TensorRT; nothing was written"
    assert "BatchNormalization bn1: it is in training mode, which the build profile refuses" in error.where
    assert "training_mode: eval" in error.hint


@pytest.mark.parametrize("policy", ["as-written", "eval", "refuse"])
def test_constant_weights_are_no_question_of_policy(tmp_path, policy):
    model = parse(
        "g (float[N, 3, 8, 8] x) => (float[] y) { [bn] n, m, v = BatchNormalization <training_mode=1> (k, gamma, beta, mu, var)"
        " w = Reshape(n, s) y = Conv(x, w) }",
        {"k": random(1, 4, 27), "s": np.array([4, 3, 3, 3]), **batchnorm(4)},
    )
    rewriting = rewrite(loaded(model, tmp_path), settings=RewriteSettings(training_mode=policy))
    rewriting.require_all_checks_passed()
    assert operators(rewriting.model) == ["Conv"]
    assert (rewriting.warnings, rewriting.meant) == ((), None)


def test_a_mismatch_is_refused_with_the_line_that_helps(tmp_path):
    error = refused(rewrite(loaded(mismatch(), tmp_path)))
    assert error.where.splitlines()[1:4] == [
        "BatchNormalization bn: scale, bias, mean and variance hold 16 values, but axis 1 of x [N, 64, 6, 6] has 64",
        "    the 64 come from Conv conv, whose weight w is [64, 3, 3, 3]",
        "    no axis of x has 16",
    ]
    assert "mismatch: {bn: repeat-per-group}" in error.hint.splitlines()


def test_the_line_helps(tmp_path):
    rewriting = rewrite(loaded(mismatch(), tmp_path), settings=RewriteSettings(mismatch={"bn": "repeat-per-group"}))
    rewriting.require_all_checks_passed()
    assert operators(rewriting.model) == ["Conv"]
    assert [(c.rule, c.changes_meaning) for c in rewriting.changes] == [
        ("repair-batchnorm-channels", True),
        ("fold-batchnorm-conv", False),
    ]
    assert rewriting.meant is not None
    wanted = {name: np.repeat(value, 4) for name, value in batchnorm(16).items()}
    meant = parse(
        "g (float[N, 3, 8, 8] a) => (float[] y) { x = Conv(a, w) y = BatchNormalization(x, gamma, beta, mu, var) }",
        {"w": random(64, 3, 3, 3), **wanted},
    )
    assert worst_relative_error(meant, rewriting.model, {"a": (2, 3, 8, 8)}) < 1e-6
    assert worst_relative_error(meant, rewriting.meant, {"a": (2, 3, 8, 8)}) < 1e-12
    json.dumps([asdict(change) for change in rewriting.changes])


def test_a_certain_repair_warns_and_is_no_change_of_meaning(tmp_path):
    rewriting = rewrite(loaded(mismatch(count=1), tmp_path))
    rewriting.require_all_checks_passed()
    assert "bn has one value for 64 channels in scale, bias, mean and variance" in rewriting.warnings[0]
    assert not any(change.changes_meaning for change in rewriting.changes)
    assert rewriting.meant is not None


def test_a_line_that_is_not_needed_is_mentioned(tmp_path):
    rewriting = rewrite(loaded(mismatch(64), tmp_path), settings=RewriteSettings(mismatch={"bn": "tile"}))
    assert rewriting.warnings == ("the build profile says how to read the parameters of bn, but they fit",)
    assert rewriting.meant is None


def test_weights_that_are_not_needed_change_nothing(tmp_path):
    other = {name: value + 1 for name, value in batchnorm(64).items()}
    checkpoint = Checkpoint(Path("w.pt"), dict.fromkeys(other, 64), other.__getitem__)
    plain = rewrite(loaded(mismatch(64), tmp_path))
    with_weights = rewrite(loaded(mismatch(64), tmp_path), settings=RewriteSettings(checkpoint=checkpoint))
    assert plain.model == with_weights.model
    (warning,) = with_weights.warnings
    assert warning.startswith("--weights w.pt was not needed: every normalization's parameters fit")


def test_several_mismatches_are_all_found_in_one_go(tmp_path):
    """Shape inference stops at the first; the user should not need one run for each."""
    steps = " ".join(
        f"c{i} = Conv(x{i}, w) [bn{i}] x{i + 1} = BatchNormalization(c{i}, gamma, beta, mu, var)" for i in range(12)
    )
    model = parse(f"g (float[N, 8, 9, 9] x0) => (float[] x12) {{ {steps} }}", {"w": random(8, 8, 1, 1), **batchnorm(4)})
    error = refused(rewrite(loaded(model, tmp_path)))
    assert error.summary.startswith("12 normalization(s)")
    assert error.where.splitlines()[-1] == "and 4 more"
    chosen = RewriteSettings(mismatch={f"bn{i}": "tile" for i in range(12)})
    rewriting = rewrite(loaded(model, tmp_path), settings=chosen)
    rewriting.require_all_checks_passed()
    assert operators(rewriting.model) == ["Conv"] * 12
    assert rewriting.warnings[0].startswith("each of 12 nodes (bn0, bn1, bn2, bn3, bn4, bn5, bn6, bn7 and 4 more) has 4 values")


def test_a_skipped_repair_is_refused_and_not_silently_wrong(tmp_path):
    rewriting = rewrite(
        loaded(mismatch(count=1), tmp_path), settings=RewriteSettings(skip=("batchnorm-parameters-to-vectors",))
    )
    assert [change.rule for change in rewriting.changes] == ["repair-batchnorm-channels", "fold-batchnorm-conv"]
    both = RewriteSettings(skip=("batchnorm-parameters-to-vectors", "repair-batchnorm-channels"))
    assert "hold 1 value, but axis 1" in refused(rewrite(loaded(mismatch(count=1), tmp_path), settings=both)).where


def test_statistics_of_run_time_do_not_fold_but_build(tmp_path):
    """``track_running_stats=False`` as TorchScript writes it is neither repaired nor questioned."""
    model = parse(
        "g (float[2, 4, 5, 5] x) => (float[] y) { m = ReduceMean <axes=[0, 2, 3], keepdims=0> (x) [bn] y, a, b ="
        " BatchNormalization <training_mode=1> (x, gamma, beta, m, m) }",
        batchnorm(4),
    )
    rewriting = rewrite(loaded(model, tmp_path), settings=RewriteSettings(training_mode="refuse"))
    rewriting.require_all_checks_passed()
    assert [c.rule for c in rewriting.changes] == ["batchnorm-batch-statistics"]
    assert (rewriting.warnings, rewriting.meant) == ((), None)


@pytest.mark.parametrize("opset", [1, 5, 6])
def test_old_opsets_are_raised_first(tmp_path, opset):
    model = parse(
        "g (float[2, 3, 8, 8] x) => (float[2, 4, 8, 8] y) { c = Conv <kernel_shape=[1, 1]> (x, w)"
        " [bn] b = BatchNormalization <is_test=1, epsilon=0.001> (c, gamma, beta, mu, var) y = Relu(b) }",
        {"w": random(4, 3, 1, 1), **batchnorm(4)},
        opset=opset,
        ir=4,
    )
    if opset < 6:
        model.graph.node[1].attribute.append(onnx.helper.make_attribute("consumed_inputs", [0, 0, 0, 1, 1]))
    rewriting = rewrite(loaded(model, tmp_path))
    rewriting.require_all_checks_passed()
    assert operators(rewriting.model) == ["Conv", "Relu"]
    assert rewriting.model.opset_import[0].version == 7
    assert rewriting.meant is not None
    assert rewriting.warnings == (f"the model is of opset {opset}, which ONNX Runtime does not run; it was raised to opset 7",)
    x = random(2, 3, 8, 8)
    gamma, beta, mu, var = (batchnorm(4)[name].astype(np.float64).reshape(-1, 1, 1) for name in ("gamma", "beta", "mu", "var"))
    c = np.einsum("nihw,oi->nohw", x.astype(np.float64), random(4, 3, 1, 1)[:, :, 0, 0])
    wanted = np.maximum((c - mu) / np.sqrt(var + np.float64(np.float32(0.001))) * gamma + beta, 0)
    assert np.max(np.abs(evaluate(rewriting.model, {"x": x})["y"] - wanted)) < 1e-5


def test_training_mode_of_opset_6(tmp_path):
    """Without is_test a BatchNormalization-6 is in training mode, which TensorRT silently takes for inference."""
    model = parse(
        "g (float[2, 4, 5, 5] x) => (float[2, 4, 5, 5] y) { [bn] y = BatchNormalization(x, gamma, beta, mu, var) }",
        batchnorm(4), opset=6, ir=4,
    )  # fmt: skip
    written = rewrite(loaded(model, tmp_path))
    written.require_all_checks_passed()
    assert [c.rule for c in written.changes] == ["batchnorm-batch-statistics"]
    asked = rewrite(loaded(model, tmp_path), settings=EVAL)
    assert [c.rule for c in asked.changes] == ["batchnorm-to-inference", "batchnorm-to-scale-shift"]
    refused(rewrite(loaded(model, tmp_path), settings=RewriteSettings(training_mode="refuse")))


def test_an_old_opset_that_cannot_be_raised_is_left_to_tensorrt_with_a_warning(tmp_path):
    model = parse(
        "g (float[2, 4, 5, 5] x) => (float[2, 4, 5, 5] y) { d = Selu <consumed_inputs=[0]> (x)"
        " [bn] y = BatchNormalization <is_test=1, consumed_inputs=[0, 0, 0, 1, 1]> (d, gamma, beta, mu, var) }",
        batchnorm(4), opset=5, ir=4,
    )  # fmt: skip
    rewriting = rewrite(loaded(model, tmp_path))
    rewriting.require_all_checks_passed()
    assert operators(rewriting.model) == ["Selu", "BatchNormalization"]
    assert "cannot be raised: Selu changed between opset 5 and 7" in rewriting.warnings[0]
    assert "nothing can be proved" in rewriting.warnings[0]


def test_the_plan_sees_what_the_rewriting_does(tmp_path):
    _, planned, _ = plan(loaded(mismatch(count=1), tmp_path))
    assert [match.rule.name for match in planned.matches] == ["batchnorm-parameters-to-vectors"]
    _, planned, _ = plan(loaded(training(), tmp_path), EVAL)
    assert [match.rule.name for match in planned.matches] == ["batchnorm-to-inference"]


def test_the_same_input_gives_the_same_bytes(tmp_path):
    settings = RewriteSettings(mismatch={"bn": "tile"})
    first, second = (rewrite(loaded(mismatch(), tmp_path), settings=settings) for _ in range(2))
    assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(deterministic=True)


def test_what_is_cleaned_before_and_behind_a_repair_counts_together(tmp_path):
    """The shape of a product that ONNX does not know is a constant only once another operator is in its place."""

    def folded(made_of: str) -> int:
        made = product()
        made.graph.node[0].output[0] = "y0"
        body = f"g (float[2, 5, 6] y0) => (float[] y) {{ t = Shape(y0) {made_of} p = Mul(y0, k) y = Reshape(p, t) }}"
        made.graph.node.extend(parse(body).graph.node)
        given = ["half"] if made_of else ["k"]
        made.graph.initializer.extend(onnx.numpy_helper.from_array(random(6), name) for name in given)
        rewriting = rewrite(loaded(made, tmp_path))
        assert [change.rule for change in rewriting.changes] == ["matmul-block-weights"]
        return rewriting.cleaning.counts["constants folded"]

    assert folded("k = Exp(half)") == folded("") + 1 > 1
