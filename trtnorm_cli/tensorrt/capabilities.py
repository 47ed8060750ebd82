"""The capabilities of a TensorRT, by name. Each is the names of its API that must exist, and those that rule it out.

Nothing here asks for a version number. TensorRT 10, TensorRT 11 and TensorRT for RTX differ in what they have, also from one
release to the next, and a name that is there is what counts. Every use of a name that some release lacks stands behind one of
these capabilities. A test holds the package against the names of each release.
"""

from __future__ import annotations

from typing import Any

from trtnorm_cli.light_dataclass import dataclass

# Only TensorRT for RTX has it: kernels are compiled ahead of time, without timing them on a device.
_COMPILES_FOR_TARGETS = "IBuilderConfig.set_compute_capability"


@dataclass(frozen=True)
class Capability:
    """A capability that is there where all of ``names`` exist and none of ``not_with`` does.

    A name is ``member`` or ``Class.member``.
    """

    name: str
    names: tuple[str, ...]
    not_with: tuple[str, ...] = ()

    def is_in(self, trt: Any) -> bool:
        """True where the module ``trt`` has it."""
        return all(has(trt, name) for name in self.names) and not any(has(trt, name) for name in self.not_with)


CAPABILITIES = (
    Capability("explicit batch flag", ("NetworkDefinitionCreationFlag.EXPLICIT_BATCH",)),
    Capability("strong typing flag", ("NetworkDefinitionCreationFlag.STRONGLY_TYPED",)),
    Capability("weak typing", ("BuilderFlag.FP16", "BuilderFlag.BF16"), (_COMPILES_FOR_TARGETS,)),
    Capability(
        "targets",
        (_COMPILES_FOR_TARGETS, "IBuilderConfig.num_compute_capabilities", "ComputeCapability", "ComputeCapability.NONE"),
    ),
    Capability(
        "tiling",
        (
            "IBuilderConfig.tiling_optimization_level",
            "IBuilderConfig.l2_limit_for_tiling",
            "TilingOptimizationLevel",
            "TilingOptimizationLevel.NONE",
            "TilingOptimizationLevel.FAST",
            "TilingOptimizationLevel.MODERATE",
            "TilingOptimizationLevel.FULL",
        ),
    ),
    # On TensorRT for RTX the names below exist and do nothing: it logs that they are unsupported, and builds.
    Capability("hardware compatibility", ("HardwareCompatibilityLevel.AMPERE_PLUS",), (_COMPILES_FOR_TARGETS,)),
    Capability("same compute capability", ("HardwareCompatibilityLevel.SAME_COMPUTE_CAPABILITY",), (_COMPILES_FOR_TARGETS,)),
    Capability("timing cache", ("IBuilderConfig.create_timing_cache", "ITimingCache.combine"), (_COMPILES_FOR_TARGETS,)),
    # TensorRT from 10.16 on has the names, too. How it hands the pieces on was only seen on TensorRT for RTX.
    Capability("engine in pieces", ("Builder.build_serialized_network_to_stream", "IStreamWriter", _COMPILES_FOR_TARGETS)),
    Capability("attention", ("LayerType.ATTENTION_INPUT", "IAttentionInputLayer", "IAttention.decomposable")),
    # Its wheel comes without libnvinfer_lean, which a version-compatible engine carries along.
    Capability("lean runtime", ("BuilderFlag.VERSION_COMPATIBLE",), (_COMPILES_FOR_TARGETS,)),
)
NAMES = frozenset(capability.name for capability in CAPABILITIES)


def has(trt: Any, name: str) -> bool:
    """True where the module ``trt`` has ``name``, as ``member`` or ``Class.member``."""
    for part in name.split("."):
        if not hasattr(trt, part):
            return False
        trt = getattr(trt, part)
    return True


def capabilities_of(trt: Any) -> frozenset[str]:
    """The names of the capabilities that the module ``trt`` has."""
    return frozenset(capability.name for capability in CAPABILITIES if capability.is_in(trt))
