"""An engine held against what it may have been built from: an ONNX file, or TensorRT's network of one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from trtnorm_cli.differences.facts import LAYERS, MODEL, Fact, counts_text
from trtnorm_cli.differences.models import interface, shape_text
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.profile.fit import ProfileRecord
from trtnorm_cli.tensorrt.manifest import Manifest
from trtnorm_cli.tensorrt.network.launch import NetworkTranslation


def origin_note(model: LoadedModel, manifest: Manifest) -> str | None:
    """The connection of the engine with the file, where its manifest tells by the file's digest."""
    if manifest.source.sha256 == model.sha256:
        return f"the engine was built from {model.path.name}"
    if manifest.export is not None and manifest.export.model.sha256 == model.sha256:
        return f"the engine was built from the export that {model.path.name} is"
    if manifest.rewritten is not None and manifest.rewritten.sha256 == model.sha256:
        return f"{model.path.name} is the rewriting that the engine was built from"
    return None


def source_fact(manifest: Manifest) -> Fact:
    """The model that the engine was built from, as a fact about a file."""
    return Fact("model", MODEL, f"{manifest.source.file} ({manifest.source.sha256[:12]})")


def size_facts(model: LoadedModel, manifest: Manifest) -> tuple[list[Fact], list[Fact]]:
    """The sizes of each input that no optimization profile of the engine has as the model has them, for both sides."""
    own, others = [], []
    for tensor in interface(model.proto):
        wrong = next(_unlike(tensor.name, tensor.shape, manifest.optimization_profiles), None)
        if wrong is not None:
            own.append(Fact("sizes", f"sizes of {tensor.name}", shape_text(tensor)))
            others.append(Fact("sizes", f"sizes of {tensor.name}", wrong))
    return own, others


def _unlike(name: str, shape: tuple[int | str | None, ...] | None, profiles: tuple[ProfileRecord, ...]) -> Iterator[str]:
    for profile in profiles:
        if name not in profile.inputs or shape is None:
            continue
        found = profile.inputs[name]
        for sizes in (found.min, found.opt, found.max):
            fits = len(sizes) == len(shape) and all(
                not isinstance(own, int) or own == size for own, size in zip(shape, sizes, strict=True)
            )
            if not fits:
                yield f"{list(sizes)} in the profile {profile.name}"


def layers_fact(network: NetworkTranslation) -> Fact:
    """The layers of a network, as a manifest counts them."""
    return Fact("layers", LAYERS, counts_text(Counter(network.layers)))
