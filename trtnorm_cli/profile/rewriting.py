"""The user's decisions about a rewriting.

They name rules to leave out, and the meaning of a model that can be read in two ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal, get_args

from trtnorm_cli.light_dataclass import dataclass

if TYPE_CHECKING:
    from trtnorm_cli.checkpoint import Checkpoint
    from trtnorm_cli.onnx_model.fixed_inputs import FixedInputs

TrainingMode = Literal["as-written", "eval", "refuse"]
# The type that a network computes in; see ``precision.py`` for what each does.
Precision = Literal["as-written", "fp16", "bf16", "fp32"]
PRECISIONS: tuple[str, ...] = get_args(Precision)
DynamicQuantization = Literal["as-written", "float"]
DYNAMIC_QUANTIZATIONS: tuple[str, ...] = get_args(DynamicQuantization)
Optimize = Literal["auto", "always", "kernels", "never"]

Implementation = Literal["native", "plugin"]

# How parameters that are not one value per channel can be meant; see ``readings.py`` for what each does.
READINGS = (
    "expand",
    "repeat-per-group",
    "tile",
    "take-head",
    "per-channel",
    "checkpoint",
    *(f"axis-{axis}" for axis in range(6)),
)


# The rules that do what the build profile says under ``instance_norm`` and ``group_norm``.
INSTANCE_NORM_TO_PLUGIN, GROUP_NORM_TO_PLUGIN = "instance-norm-to-plugin", "group-norm-to-plugin"


@dataclass(frozen=True)
class Implementations:
    """The implementation of the normalizations of one kind, by TensorRT's layers or a plugin. ``nodes`` are the exceptions."""

    default: Implementation = "native"
    nodes: Mapping[str, Implementation] = field(default_factory=dict)

    def of(self, node: str) -> Implementation:
        """The implementation of ``node``. Nodes made by a rewrite are named ``NODE/part`` and inherit NODE's."""
        named = [name for name in self.nodes if is_of(node, name)]
        return self.nodes[max(named, key=len)] if named else self.default


def is_of(node: str, name: str) -> bool:
    """True when ``node`` is the node ``name``, or was made in its place."""
    return node == name or node.startswith(f"{name}/")


@dataclass(frozen=True)
class RewriteSettings:
    """The settings of one rewriting.

    ``skip`` names rules. ``mismatch`` maps a normalization node to the reading of its parameters (one of ``READINGS``).
    ``training_mode`` says what becomes of a BatchNormalization in training mode, and ``dynamic_quantization`` of operators on
    activations that are quantised at run time. ``checkpoint`` holds the weights that the user
    gave beside the model. ``optimize`` says whether changes that only improve a model are made. ``auto`` makes them, and a
    build takes back those that cost time by the estimate. ``left_out`` names tensors whose computation must not change even so.
    ``instance_norm`` and ``group_norm`` say what computes these. ``measured`` is set where builds decide which optional changes
    stay, so that changes may be tried that are not always for the better, and ``counted`` where the user asked for the fewest
    kernels, so that changes may be tried whose proofs take seconds. ``last_resorts`` is False where what nothing absorbs stays
    as it is if TensorRT takes it so. ``corners`` are input shapes, min, opt and max of every
    optimization profile. What is the same at all of them may be built upon. ``fixed`` are the inputs' sizes and elements that
    are the same at all of them. ``asked`` names what a rule had to know.
    """

    skip: tuple[str, ...] = ()
    training_mode: TrainingMode = "as-written"
    dynamic_quantization: DynamicQuantization = "as-written"
    mismatch: Mapping[str, str] = field(default_factory=dict)
    checkpoint: Checkpoint | None = None
    optimize: Optimize = "always"
    left_out: frozenset[str] = frozenset()
    instance_norm: Implementations = Implementations()
    group_norm: Implementations = Implementations()
    measured: bool = False
    counted: bool = False
    last_resorts: bool = True
    corners: tuple[Mapping[str, tuple[int, ...]], ...] = ()
    fixed: FixedInputs | None = None
    asked: set[str] = field(default_factory=set, compare=False, repr=False)

    def allows_measured(self) -> bool:
        """True where changes may be tried that are not always for the better. That it was asked is remembered."""
        self.asked.add("measured")
        return self.measured
