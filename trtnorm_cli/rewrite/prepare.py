"""Read what the user gave: a model, its build profile, and the two fitted to each other; and rewrite it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from trtnorm_cli.checkpoint import Checkpoint, load_checkpoint
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.normalization_nodes import normalizations
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.profile.dims import CORNERS
from trtnorm_cli.profile.facts import as_profiled, fixed_inputs
from trtnorm_cli.profile.fit import FittedProfiles, fit
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.profile.names import refuse_unknown_names
from trtnorm_cli.profile.plugins import library_paths
from trtnorm_cli.profile.prove import Proof, prove
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.profile.start import start_for
from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession, rewrite
from trtnorm_cli.rewrite.rules import RULES


@dataclass(frozen=True)
class Prepared:
    """A model that was read, with the build profile that goes with it.

    ``loaded`` is the model of the file as the profile reads it (``as_profiled``).
    """

    loaded: LoadedModel
    profile: BuildProfile | None
    fitted: FittedProfiles
    checkpoint: Checkpoint | None = None
    proof: Proof | None = None
    # Of a PyTorch model: how it was exported, and the file that it came from.
    export: dict[str, Any] | None = None
    source: Path | None = None

    @property
    def profile_path(self) -> Path | None:
        """The file of the build profile."""
        return None if self.profile is None else self.profile.path

    @property
    def plugin_libraries(self) -> tuple[str, ...]:
        """The libraries with plugins that the profile names, as absolute paths."""
        folder = Path() if self.profile_path is None else self.profile_path.parent
        return tuple(str(path.absolute()) for path in library_paths(self.profile, folder))

    def proof_shapes(self) -> dict[str, tuple[int, ...]]:
        """The input shapes at which changes are proved: the smallest that the engine must take."""
        return {name: tuple(max(size, 1) for size in shape) for name, shape in self.fitted.profiles[0].at("min").items()}

    def _corners(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """The input shapes at min, opt and max of every profile, each once."""
        found = {
            tuple(sorted(shapes.items())): shapes
            for profile in self.fitted.profiles
            for shapes in (profile.at(corner) for corner in CORNERS)
        }
        return tuple(found.values())

    def rewrite(self) -> Rewriting:
        """Clean the model and apply the rules that the profile does not leave out."""
        return self.session().rewrite()

    def session(self) -> RewritingSession:
        """The model, cleaned and ready to be rewritten.

        Raises ``ProfileError`` when the profile says how to read a node that the model does not have.
        """
        settings = replace(
            rewrite_settings(self.profile, self.checkpoint), corners=self._corners(), fixed=fixed_inputs(self.fitted)
        )
        session = RewritingSession(self.loaded, self.proof_shapes(), settings)
        if self.profile is not None:
            operators = {norm.label: norm.operator for norm in normalizations(session.cleaning.model)}
            others = {node.name: node.op_type for node in all_nodes(session.cleaning.model) if node.name}
            refuse_unknown_names(self.profile, normalizations=list(operators), operators={**others, **operators})
        return session


def rewrite_settings(profile: BuildProfile | None, checkpoint: Checkpoint | None = None) -> RewriteSettings:
    """What ``profile`` says about the rewriting; ``checkpoint`` are the weights given beside the model."""
    if profile is None:
        return RewriteSettings(checkpoint=checkpoint)
    return RewriteSettings(
        profile.rules.skip,
        profile.training_mode,
        profile.mismatch,
        checkpoint,
        profile.optimize,
        instance_norm=profile.instance_norm.settings(),
        group_norm=profile.group_norm.settings(),
    )


def prepare(model: Path, profile_path: Path | None, weights: Path | None = None, snap: bool = False) -> Prepared:
    """Read the model, its profile and further weights, check every name in the profile, and fit one to the other.

    Every size of the profile is proved to fit the model; with ``snap`` those that do not are moved to ones that do.
    """
    profile = None if profile_path is None else load_profile(profile_path)
    return _prepared(load_model(model), profile, weights, snap)


def prepare_opened(
    opened: OpenedModel, snap: bool = False, on_loaded: Callable[[LoadedModel], None] = lambda loaded: None
) -> Prepared:
    """As ``prepare``, for a model that may have been exported a moment ago and the build profile that goes with it.

    ``on_loaded`` is shown the model before any work is spent on it, and may refuse it.
    """
    loaded = load_model(opened.path)
    on_loaded(loaded)
    prepared = _prepared(loaded, opened.profile, opened.weights, snap)
    return replace(prepared, export=opened.manifest, source=opened.source)


def _prepared(loaded: LoadedModel, profile: BuildProfile | None, weights: Path | None, snap: bool) -> Prepared:
    if profile is not None:
        outputs = [value.name for value in loaded.proto.graph.output]
        refuse_unknown_names(profile, outputs=outputs, rules=[rule.name for rule in RULES])
    checkpoint = None if weights is None else load_checkpoint(weights)
    loaded = replace(loaded, proto=as_profiled(loaded.proto, profile))
    inputs = inputs_of(loaded.proto)
    proof = prove(loaded.proto, inputs, profile, fit(profile, inputs, partial(start_for, loaded.proto, inputs)), snap)
    return Prepared(loaded, proof.profile, proof.fitted, checkpoint, proof)


def rewrite_alone(
    model: Path,
    profile_path: Path | None,
    weights: Path | None = None,
    snap: bool = False,
    on_proof: Callable[[Proof | None], None] = lambda proof: None,
) -> tuple[LoadedModel, Rewriting]:
    """Read and rewrite a model. Without a profile, the shapes at which changes are proved are chosen.

    ``on_proof`` is told what the proof of the profile found, before the rewriting begins.
    """
    profile = None if profile_path is None else load_profile(profile_path)
    return rewrite_opened(OpenedModel(model, profile, model, weights), snap, on_proof)


def rewrite_opened(
    opened: OpenedModel, snap: bool = False, on_proof: Callable[[Proof | None], None] = lambda proof: None
) -> tuple[LoadedModel, Rewriting]:
    """As ``rewrite_alone``, for a model that may have been exported a moment ago."""
    model, weights = opened.path, opened.weights
    if opened.profile is not None:
        prepared = prepare_opened(opened, snap)
        on_proof(prepared.proof)
        return prepared.loaded, prepared.rewrite()
    loaded = load_model(model)
    checkpoint = None if weights is None else load_checkpoint(weights)
    return loaded, rewrite(loaded, settings=rewrite_settings(None, checkpoint))


@dataclass(frozen=True)
class OpenedModel:
    """An ONNX file and the build profile that fits it. ``manifest`` says how it was exported, None where it was not.

    ``source`` is the file that the user named, ``None`` for a Python module; ``weights`` those that are still to be used.
    """

    path: Path
    profile: BuildProfile | None
    source: Path | None
    weights: Path | None
    manifest: dict[str, Any] | None = None
