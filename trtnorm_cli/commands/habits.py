"""Habits of users of trtexec and polygraphy, and trtnorm's words for the same. Only read after a usage error."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence
from pathlib import Path

_SHAPES = "--profile cfg.yaml holds min, opt and max; `trtnorm init {model} -o cfg.yaml` writes one to start from"
_TYPES = (
    "types follow the model, because networks are strongly typed: convert the model to {type} before, "
    "such as module.{method}() in PyTorch"
)
_QUANTISED = "types follow the model: quantise it before with QuantizeLinear and DequantizeLinear nodes (static Q/DQ)"
_RUNS = "trtnorm does not measure time: build with trtnorm, and measure OUT.engine with the other tool"
_ALWAYS = "leave it out: {reason}"

# What belongs into the build profile: trtexec's or polygraphy's name, and the key under ``builder:``.
_SETTINGS = {
    "workspace": "workspace: 2GiB", "mempoolsize": "workspace: 2GiB", "poollimit": "workspace: 2GiB",
    "builderoptimizationlevel": "optimization_level: 3", "timingcachefile": "timing_cache: FILE",
    "loadtimingcache": "timing_cache: FILE", "savetimingcache": "timing_cache: FILE", "timingcache": "timing_cache: FILE",
    "notf32": "tf32: false", "tf32": "tf32: true", "sparsity": "sparse_weights: true", "sparseweights": "sparse_weights: true",
    "refit": "refit: true", "refittable": "refit: true", "stripweights": "strip_plan: true", "stripplan": "strip_plan: true",
    "versioncompatible": "version_compatible: true", "vc": "version_compatible: true",
    "excludeleanruntime": "exclude_lean_runtime: true", "hardwarecompatibilitylevel": "hardware_compatibility: ampere_plus",
    "allowweightstreaming": "weight_streaming: true", "maxauxstreams": "max_aux_streams: 1",
    "tilingoptimizationlevel": "tiling: fast", "l2limitfortiling": "l2_limit: 32MiB",
    "profilingverbosity": "profiling_verbosity: detailed", "computecapabilities": "targets: [sm_86, sm_89]",
}  # fmt: skip

# Names of options without dashes and in small letters, and what to write instead.
_OPTIONS: tuple[tuple[str, str], ...] = (
    (r"(trt)?(min|opt|max)shapes?|(input)?shapes?|(model)?inputshapes?|modelinputs|maxbatch(size)?|batch", _SHAPES),
    (r"fp16|half", _TYPES.format(type="float16", method="half")),
    (r"bf16", _TYPES.format(type="bfloat16", method="bfloat16")),
    (r"int8|fp8|int4|fp4|calib|calibration(cache|basecls)?", _QUANTISED),
    (r"best|precisionconstraints|layerprecisions|layeroutputtypes|obeyprecisionconstraints", "types follow the model"),
    (r"onnx|model|modelfile|modelpath|input", "the model is an argument without an option: trtnorm build {model}"),
    (r"saveengine|engine|outputfile", "-o OUT.engine"),
    (r"loadengine", "`trtnorm inspect OUT.engine` shows what is in it, `trtnorm compare {model} OUT.engine` runs it on a GPU"),
    (
        r"trt|trtrt|onnxrt|validate|checkeroptions",
        "`trtnorm compare {model}` compares the model with what TensorRT makes of it",
    ),
    (r"loadinputs|dataloaderscript|loadinputdata", "`trtnorm compare {model} --data FILE`"),
    (r"valrange", "`data:` in the build profile says what random inputs look like"),
    (r"atol|rtol", "`tolerances:` in the build profile, or the option of `trtnorm compare`"),
    (r"profile", "--profile CFG.yaml"),
    (r"(static|dynamic|setpluginsto)?plugins(toserialize)?|plugin", "`plugins:` in the build profile names the libraries"),
    (r"exportlayerinfo|dumplayerinfo|exporttimes|exportoutput|dumpoutput", "OUT.engine.json lists every layer and kernel"),
    (r"(builderverbose|verbose|extraverbose|log(level|ger)?|verbosity|debug)", "-v after the command"),
    (r"(quiet|silent)", "-q after the command"),
    (r"buildonly|skipinference", _ALWAYS.format(reason="`trtnorm build` never runs the engine")),
    (r"explicitbatch|explicitprecision|stronglytyped", _ALWAYS.format(reason="every network is so")),
    (r"foldconstants|sanitize|simplify", _ALWAYS.format(reason="constants are always folded")),
    (r"(avgruns|iterations|duration|warmup|sleeptime|streams|usecudagraph|usespinwait|dumpprofile|exportprofile)", _RUNS),
    (r"(nodatatransfers|separateprofilerun|threads|infstreams)", _RUNS),
    (r"usedlacore|allowgpufallback", "engines for DLA cores are not built by trtnorm"),
    (r"json", "--json after the command"),
    *((re.escape(name), f"`builder: {{{{{line}}}}}` in the build profile") for name, line in _SETTINGS.items()),
)

_COMMANDS = {
    "convert": "trtnorm build {model} -o OUT.engine",
    "trtexec": "trtnorm build {model} -o OUT.engine",
    "onnx2trt": "trtnorm build {model} -o OUT.engine",
    "compile": "trtnorm build {model} -o OUT.engine",
    "run": "trtnorm compare {model}",
    "verify": "trtnorm compare {model}",
    "validate": "trtnorm compare {model}",
    "surgeon": "trtnorm rewrite {model} -o FIXED.onnx",
    "simplify": "trtnorm rewrite {model} -o FIXED.onnx",
    "optimize": "trtnorm rewrite {model} -o FIXED.onnx",
    "template": "trtnorm init {model} -o cfg.yaml",
    "check": "trtnorm inspect {model}",
    "show": "trtnorm inspect {model}",
    "debug": "trtnorm build {model} --isolate",
}
_MODEL = re.compile(r"\.(onnx|pt2|pt|pth|py(:\w+)?)$", re.IGNORECASE)
_ENGINE = re.compile(r"\.(engine|plan|trt)$", re.IGNORECASE)
_PROFILE = re.compile(r"\.ya?ml$", re.IGNORECASE)


def about_command(word: str, commands: Collection[str], arguments: Sequence[str]) -> str:
    """The hint where ``word`` stands in the place of a command and is none."""
    if (way := _COMMANDS.get(word.casefold())) is not None:
        return f"there is no command '{word}'; the trtnorm way: {_filled(way, arguments)}"
    if _ENGINE.search(word):
        return f"a command comes before the engine: trtnorm inspect {word}"
    if _PROFILE.search(word):
        return f"a command and the model come before the build profile: trtnorm build MODEL.onnx -p {word}"
    if _MODEL.search(word) or Path(word).is_file():
        return (
            f"a command comes before the model: `trtnorm build {word}` makes an engine of it, "
            f"`trtnorm inspect {word}` shows what is in it"
        )
    near = difflib.get_close_matches(word, commands, 1)
    return f"there is no command '{word}'" + (f"; did you mean '{near[0]}'?" if near else "")


def about_options(arguments: Sequence[str], accepted: Collection[str]) -> list[str]:
    """A line for each of ``arguments`` that is an option of another tool and none of the ``accepted`` ones."""
    written = [argument.partition("=")[0] for argument in arguments if argument.startswith("--") and argument != "--"]
    ways = {name: way for name in dict.fromkeys(written) if name not in accepted and (way := _way(name)) is not None}
    return [f"{name} → {_filled(way, arguments)}" for name, way in ways.items()]


def _way(option: str) -> str | None:
    name = option.strip("-").replace("-", "").replace("_", "").casefold()
    return next((way for pattern, way in _OPTIONS if re.fullmatch(pattern, name)), None)


def _filled(way: str, arguments: Sequence[str]) -> str:
    """``way`` with the model that the user named, where one can be told among the arguments."""
    values = [argument.partition("=")[2] if argument.startswith("-") else argument for argument in arguments]
    return way.format(model=next((value for value in values if _MODEL.search(value)), "MODEL.onnx"))
