"""The judges of a random model: what must agree with what, and where it does not, a find.

What a model computes is said by ONNX Runtime in the model's own types, and by trtnorm's evaluation in float64. Held against the
latter are the rewriting, with every policy of optional changes, and TensorRT's network of it. Sizes by trtnorm's rules are held
against those of the run. How far constants may move a result is measured on each model, by moving them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from benchmarks.random_models.models import RandomModel
from trtnorm_cli.errors import TrtnormError
from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.float64.errors import UnsupportedOperator
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.walk import all_nodes, all_tensors
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.propagate import propagate

Arrays = dict[str, np.ndarray]
Policy = Literal["always", "never", "kernels"]
POLICIES: tuple[Policy, ...] = get_args(Policy)
_EPSILON = {onnx.TensorProto.FLOAT16: 2.0**-10, onnx.TensorProto.BFLOAT16: 2.0**-7}
_SMALLEST, _FACTOR, _SAYS_NOTHING = 2e-6, 30.0, 0.02
# ONNX Runtime rounds every result; a sum of many of them may lose this much more than constants that are rounded once.
_NATIVE_FACTOR = 2000.0
# A limit is measured by a few moves, and by so many before something is called a find: a condition may hang on rounding.
_MOVES, _MOVES_OF_A_FIND = range(2), range(2, 20)
_STANDS_FOR_NOTHING = 1e30
_ROUNDS = ("QuantizeLinear",)


class Find(Exception):
    """Two judges that do not agree, or an end without a clear error. ``key`` is the same for finds of one kind."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}\n{text}")
        self.key = key


class NotJudged(Exception):
    """The model says nothing: no judge runs it, say."""


def judge(model: RandomModel, folder: Path, counted: Counter[str]) -> None:
    """Hold every judge of ``model`` against the others; raises ``Find``. ``counted`` learns what was done."""
    path = folder / "model.onnx"
    path.write_bytes(model.proto.SerializeToString())
    trials = [_Trial(model, largest) for largest in ((False, True) if model.sizes else (False,))]
    try:
        for trial in trials:
            trial.run(counted)
    except NotJudged as reason:
        counted[f"not judged: {reason}"] += 1
        return
    counted["models"] += 1
    for trial in trials:
        _judge_sizes(trial, counted)
    rewritings = {policy: _rewriting(path, model, policy, counted) for policy in POLICIES}
    for policy, rewriting in rewritings.items():
        if rewriting is not None:
            for trial in trials:
                trial.hold(rewriting.model, f"rewriting, optimize: {policy}", counted)
    if (rewriting := rewritings["always"]) is not None:
        rewritten = folder / "rewritten.onnx"
        save_model(rewriting.model, rewritten, rewriting.folder)
        _judge_rest(rewritten, model, counted)
        _judge_network(path, rewritten, trials, bool(rewriting.refusals), counted)


class _Trial:
    """The model at its smallest or its largest inputs."""

    def __init__(self, model: RandomModel, largest: bool) -> None:
        self.model, self.largest = model, largest
        self.sizes = {name: pair[largest] for name, pair in model.sizes.items()}
        self.feeds = _feeds(model.proto, model.shapes(largest))
        self.truth: Arrays = {}
        self.limits: dict[str, float] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.rounds = any(node.op_type in _ROUNDS for node in all_nodes(model.proto))

    def run(self, counted: Counter[str]) -> None:
        """Find the truth, what constants do to it, and whether ONNX Runtime agrees; raises ``NotJudged``."""
        native = _native(self.model.proto, self.feeds)

        def seen(name: str, value: Any) -> Any:
            if isinstance(value, np.ndarray):
                self.shapes[name] = value.shape
            return value

        try:
            self.truth = evaluate_float64(self.model.proto, self.feeds, watch=seen).outputs
        except UnsupportedOperator as refusal:
            raise NotJudged(f"no float64 for {str(refusal)[:60]}") from None
        except ReferenceUnavailable as refusal:
            raise Find("float64 fails where ONNX Runtime runs", str(refusal)) from None
        self.limits = _limits(self.model.proto, self.feeds, self.truth)
        if not self.limits or min(self.limits.values()) > _SAYS_NOTHING:
            raise NotJudged("its results are too sensitive")
        if native is not None:
            counted["float64 against ONNX Runtime"] += 1
            for name, found in native.items():
                # ONNX Runtime takes some variances as E[x²] − E[x]², and roots of what rounding makes negative. Its greatest of
                # NaN is the lowest number.
                if (np.abs(found.astype(np.float64)) < _STANDS_FOR_NOTHING).all():
                    self.agree(name, found.astype(np.float64), "float64 against ONNX Runtime", _NATIVE_FACTOR)

    def hold(self, proto: onnx.ModelProto | Path, label: str, counted: Counter[str]) -> None:
        """Evaluate another model in float64, and hold it to the truth."""
        try:
            found = evaluate_float64(proto, self.feeds).outputs
        except UnsupportedOperator as refusal:
            counted[f"not judged: no float64 of the {label}: {str(refusal)[:60]}"] += 1
            return
        except ReferenceUnavailable as refusal:
            raise Find(f"{label}: float64 fails", str(refusal)) from None
        counted[label] += 1
        if list(found) != list(self.truth):
            raise Find(f"{label}: other outputs", f"{list(self.truth)} and {list(found)}")
        for name, value in found.items():
            self.agree(name, value, label, 1.0)

    def agree(self, name: str, found: np.ndarray, label: str, factor: float) -> None:
        truth = self.truth[name]
        if found.shape != truth.shape:
            raise Find(f"{label}: another shape", f"{name}: {truth.shape} and {found.shape}")
        known = np.isfinite(truth) & (np.abs(truth) < 1e4)
        if not known.any() or self.limits[name] > _SAYS_NOTHING:
            return
        wanted, got = truth[known], np.where(np.isfinite(found[known]), found[known], 1e9)
        if self.rounds:
            off, limit = float(np.mean(np.abs(got - wanted)) / max(float(np.mean(np.abs(wanted))), 1e-3)), 0.1
        else:
            off = float(np.max(np.abs(got - wanted))) / max(float(np.max(np.abs(wanted))), 1e-3)
            limit = min(self.limits[name] * factor, 0.05)
        if off > limit and self._is_steady(name, off / factor):
            where = "largest" if self.largest else "smallest"
            raise Find(f"{label}: another value", f"{name} is off by {off:.1e} of {limit:.1e} at the {where} inputs")

    def _is_steady(self, name: str, off: float) -> bool:
        """True where more moves of the constants do not move the output as far as it is off."""
        limit = _limits(self.model.proto, self.feeds, self.truth, _MOVES_OF_A_FIND)[name]
        return limit <= min(off, _SAYS_NOTHING)


def _feeds(proto: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]]) -> Arrays:
    rng = np.random.default_rng(5)
    types = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    return {
        name: rng.standard_normal(shape).astype(onnx.helper.tensor_dtype_to_np_dtype(types[name]))
        for name, shape in shapes.items()
    }


def _native(proto: onnx.ModelProto, feeds: Arrays) -> Arrays | None:
    """The outputs of ONNX Runtime, or None where it lacks a type; raises ``NotJudged`` where it refuses the model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if any(value.dtype == ml_dtypes.bfloat16 for value in feeds.values()):
        return None
    try:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
        found = session.run(None, feeds)
    except Exception as refusal:
        if "NOT_IMPLEMENTED" in str(refusal):
            return None
        raise NotJudged(f"ONNX Runtime refuses it: {_without_names(str(refusal))[:70]}") from None
    outputs = {value.name: value for value in proto.graph.output}
    if any(value.type.tensor_type.elem_type == onnx.TensorProto.BFLOAT16 for value in outputs.values()):
        return None
    return dict(zip(outputs, found, strict=True))


def _limits(proto: onnx.ModelProto, feeds: Arrays, truth: Arrays, moves: Iterable[int] = _MOVES) -> dict[str, float]:
    """How far each output may move, relative to its largest value, from what moved constants do."""
    kinds = {tensor.data_type for tensor in all_tensors(proto)}
    kinds |= {a.i for node in all_nodes(proto) if node.op_type == "Cast" for a in node.attribute}
    epsilon = max([_EPSILON.get(kind, 2.0**-23) for kind in kinds], default=2.0**-23)
    limits = {name: max(_SMALLEST, epsilon) for name in truth}
    for seed in moves:
        moved = evaluate_float64(_moved(proto, epsilon, seed), {n: _shaken(v, epsilon, seed) for n, v in feeds.items()}).outputs
        for name, value in truth.items():
            known = np.isfinite(value)
            if known.any():
                off = np.max(np.abs(moved[name][known] - value[known])) / max(float(np.max(np.abs(value[known]))), 1e-3)
                limits[name] = max(limits[name], _FACTOR * float(off)) if np.isfinite(off) else 1.0
    return limits


def _shaken(value: np.ndarray, epsilon: float, seed: int) -> np.ndarray:
    if value.dtype.kind not in "fV" or epsilon > 2.0**-20:
        return value
    signs = np.random.default_rng([seed, 1]).choice([-1.0, 1.0], value.shape)
    return (value.astype(np.float64) * (1 + epsilon * signs)).astype(np.float64)


def _moved(proto: onnx.ModelProto, epsilon: float, seed: int) -> onnx.ModelProto:
    """The model with every floating constant moved by about ``epsilon`` of itself, up or down."""
    moved, rng = onnx.ModelProto(), np.random.default_rng(seed)
    moved.CopyFrom(proto)
    for tensor in all_tensors(moved):
        if tensor.data_type in (
            onnx.TensorProto.FLOAT,
            onnx.TensorProto.FLOAT16,
            onnx.TensorProto.DOUBLE,
            onnx.TensorProto.BFLOAT16,
        ):
            value = numpy_helper.to_array(tensor)
            numbers = value.astype(np.float64)
            if (numbers == np.round(numbers)).all() or (numbers == 0.5).all():
                continue  # an exponent, or a factor of sizes
            signs = rng.choice([-1.0, 1.0], value.shape)
            nearby = numbers * (1 + 1.5 * epsilon * signs)
            tensor.CopyFrom(numpy_helper.from_array(nearby.astype(value.dtype), tensor.name))
    return moved


def _rewriting(path: Path, model: RandomModel, policy: Policy, counted: Counter[str]) -> Rewriting | None:
    """The model rewritten; None where it is refused for a reason that TensorRT has."""
    tried = policy == "kernels"
    corners = (model.shapes(False), model.shapes(True))
    settings = RewriteSettings(optimize=policy, measured=tried, counted=tried, corners=corners)
    try:
        rewriting = RewritingSession(load_model(path), model.shapes(False), settings).rewrite()
    except TrtnormError as refusal:
        raise Find(f"rewriting refuses a valid model: {_without_names(refusal.summary)}", str(refusal)) from None
    except Exception as crash:
        raise _crashed("rewriting", crash) from crash
    for change in rewriting.failed:
        raise Find(f"a change fails its check: {change.rule}", f"{change.node}: {change.check.reason}")
    for undone in rewriting.undone:
        if undone.provable:
            raise Find(f"a change is undone: {undone.rule}", f"{undone.node}: {undone.reason}")
        counted[f"a change that cannot be proved: {undone.rule}"] += 1
    for refusal in rewriting.refusals:
        counted[f"refused: {_without_names(refusal.reason)[:80]}"] += 1
    for change in rewriting.changes:
        counted[f"rule {change.rule}"] += policy == "always"
    return rewriting


def _judge_rest(rewritten: Path, model: RandomModel, counted: Counter[str]) -> None:
    """A second pass finds nothing to change, and the result is valid."""
    counted["a second pass"] += 1
    corners = (model.shapes(False), model.shapes(True))
    settings = RewriteSettings(optimize="always", corners=corners)
    try:
        again = RewritingSession(load_model(rewritten), model.shapes(False), settings).rewrite()
    except TrtnormError as refusal:
        raise Find(f"the rewriting is refused: {_without_names(refusal.summary)}", str(refusal)) from None
    except Exception as crash:
        raise _crashed("a second pass", crash) from crash
    for change in again.changes:
        raise Find(f"a second pass changes more: {change.rule}", f"{change.node}: {change.because}")


def _judge_sizes(trial: _Trial, counted: Counter[str]) -> None:
    """The sizes by rules are those of the run, and what they demand holds."""
    try:
        found = propagate(trial.model.proto)
    except Exception as crash:
        raise _crashed("sizes", crash) from crash
    counted["sizes"] += 1
    for name, shape in trial.shapes.items():
        tensor = found.tensors.get(name)
        if tensor is None or tensor.shape is None:
            continue
        stated = values_at([size for size in tensor.shape if size is not None], trial.sizes)
        actual = [size for size, known in zip(shape, tensor.shape, strict=False) if known is not None]
        if len(tensor.shape) != len(shape) or any(s is not None and s != a for s, a in zip(stated, actual, strict=True)):
            raise Find("sizes by rules are others", f"{name}: {shape}, by the rules {tensor.shape}")
    for constraint in found.constraints:
        if not constraint.holds(trial.sizes):
            raise Find(f"sizes that run break a demand: {constraint.operator}", f"{constraint.place}: {constraint.demand}")


def _judge_network(path: Path, rewritten: Path, trials: list[_Trial], is_refused: bool, counted: Counter[str]) -> None:
    """TensorRT takes the rewriting where it takes the model, and its network computes what the model does."""
    from trtnorm_cli.tensorrt.network.parsing import ParserRefused
    from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer

    network = rewritten.with_name("network.onnx")
    try:
        _parsed(rewritten, network)
    except ParserRefused as refusal:
        why = _without_names(str(refusal))
        try:
            _parsed(path, network)
        except (ParserRefused, UntranslatableLayer):
            counted[f"TensorRT refuses the rewriting: {why[:90]}"] += 1
            return
        raise Find("TensorRT refuses the rewriting and takes the model", str(refusal)) from None
    except UntranslatableLayer as layer:
        counted[f"not translated: {_without_names(str(layer))[:80]}"] += 1
        return
    except Exception as crash:
        raise _crashed("the network's translation", crash) from crash
    if not is_refused:
        for trial in trials:
            trial.hold(network, "TensorRT's network of the rewriting", counted)


_PARSE: list[Callable[[Path, Path], object]] = []


def _parsed(model: Path, out: Path) -> None:
    if not _PARSE:
        from trtnorm_cli.tensorrt.backend import load_backend
        from trtnorm_cli.tensorrt.network.parsing import parse_and_translate

        backend = load_backend()
        _PARSE.append(lambda source, made: parse_and_translate(source, made, backend.trt, backend.network_flags()))
    _PARSE[0](model, out)


def _crashed(what: str, crash: Exception) -> Find:
    trace, place = crash.__traceback__, ""
    while trace is not None:
        frame = trace.tb_frame.f_code
        place = f"{Path(frame.co_filename).name}, {frame.co_name}" if "trtnorm_cli" in frame.co_filename else place
        trace = trace.tb_next
    return Find(f"{what} ends with {type(crash).__name__} in {place}", str(crash)[:500])


def _without_names(text: str) -> str:
    """``text`` without what differs between models of one kind."""
    return re.sub(r"\s+", " ", re.sub(r"'[^']*'|\[[^\]]*\]|\b\w*\d\w*\b", "…", text)).strip()
