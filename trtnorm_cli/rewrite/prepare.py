"""Read what the user gave: a model, its build profile, and the two fitted to each other; and rewrite it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trtnorm_cli.checkpoint import Checkpoint, load_checkpoint
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.normalization_nodes import normalizations
from trtnorm_cli.onnx_model.source_files import SourceFiles
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.progress import stage
from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession
from trtnorm_cli.rewrite.rule import Check
from trtnorm_cli.rewrite.rules import RULES

# A rewriting without a build profile needs none of what reads profiles: with pydantic it would take a tenth of a second.
if TYPE_CHECKING:
    from trtnorm_cli.profile.fit import FittedProfiles
    from trtnorm_cli.profile.model import BuildProfile
    from trtnorm_cli.profile.precision import PrecisionSettings
    from trtnorm_cli.profile.prove import Proof
    from trtnorm_cli.records.export import ExportRecord


@dataclass(frozen=True)
class OpenedModel:
    """An ONNX file and the build profile that fits it. ``export`` says how it was exported, None where it was not.

    ``source`` is the file that the user named, ``None`` for a Python module; ``weights`` those that are still to be used.
    """

    path: Path
    profile: BuildProfile | None
    source: Path | None
    weights: Path | None
    export: ExportRecord | None = None

    @staticmethod
    def of_file(path: Path, profile: Path | None = None, weights: Path | None = None) -> OpenedModel:
        """An ONNX file of the user's, with the build profile that stands in the file ``profile``."""
        from trtnorm_cli.profile.load import load_profile

        return OpenedModel(path, None if profile is None else load_profile(profile), path, weights)


@dataclass(frozen=True)
class Prepared:
    """A model that was read, with the build profile that goes with it.

    ``original`` is the model of the file, and ``loaded`` is how the profile reads it (``as_profiled``). ``proof`` is None where
    neither a profile gives sizes nor anybody needs them. Of a PyTorch model ``export`` says how it was exported, and
    ``source`` is the file that it came from. ``further`` are the other files whose content gets into an engine. ``proofs`` are
    checks of changes that were made before, by what was proved; those that are made are added.
    """

    original: LoadedModel
    loaded: LoadedModel
    profile: BuildProfile | None
    proof: Proof | None
    checkpoint: Checkpoint | None = None
    export: ExportRecord | None = None
    source: Path | None = None
    further: SourceFiles = field(default_factory=lambda: SourceFiles(()), repr=False, compare=False)
    proofs: dict[str, Check] = field(default_factory=dict, repr=False, compare=False)

    def require_unchanged(self) -> None:
        """Raise ``ModelError`` when a file is not what it was when it was read."""
        self.original.require_unchanged()
        self.further.require_unchanged()

    @contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """A block in which an error becomes a ``ModelError`` where a file has changed, which explains it."""
        with self.further.explaining_errors(), (self.original.files or SourceFiles(())).explaining_errors():
            yield

    @property
    def sha256(self) -> str:
        """The digest of the model's files as they were read."""
        return self.original.sha256

    @property
    def fitted(self) -> FittedProfiles:
        """The input shapes of every optimization profile."""
        if self.proof is None:
            raise ValueError("the model was prepared without sizes")
        return self.proof.fitted

    @property
    def precision(self) -> PrecisionSettings | None:
        """The precision that the build profile asks for; None where the model keeps the types that it has."""
        settings = None if self.profile is None else self.profile.precision
        return None if settings is None or settings.type == "as-written" else settings

    @property
    def profile_path(self) -> Path | None:
        """The file of the build profile."""
        return None if self.profile is None else self.profile.path

    @property
    def plugin_libraries(self) -> tuple[str, ...]:
        """The libraries with plugins that the profile names, as absolute paths."""
        if self.profile is None:
            return ()
        from trtnorm_cli.profile.plugins import library_paths

        folder = Path() if self.profile_path is None else self.profile_path.parent
        return tuple(str(path.absolute()) for path in library_paths(self.profile, folder))

    @property
    def calibration_files(self) -> tuple[Path, ...]:
        """The files with calibration inputs that the profile names, as far as they exist."""
        path = None if self.profile is None else self.profile.calibration_data
        if path is None or not path.exists():
            return ()
        return tuple(sorted(path.glob("*.npy"))) if path.is_dir() else (path,)

    def proof_shapes(self) -> dict[str, tuple[int, ...]]:
        """The input shapes at which changes are proved: the smallest that the engine must take."""
        return {name: tuple(max(size, 1) for size in shape) for name, shape in self.fitted.profiles[0].at("min").items()}

    def _corners(self) -> tuple[dict[str, tuple[int, ...]], ...]:
        """The input shapes at min, opt and max of every profile, each once."""
        from trtnorm_cli.profile.dims import CORNERS

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
        settings = rewrite_settings(self.profile, self.checkpoint)
        if self.proof is None:
            return RewritingSession(self.loaded, None, settings, self.proofs)
        from trtnorm_cli.profile.facts import fixed_inputs

        settings = replace(settings, corners=self._corners(), fixed=fixed_inputs(self.fitted))
        session = RewritingSession(self.loaded, self.proof_shapes(), settings, self.proofs)
        if self.profile is not None:
            from trtnorm_cli.profile.names import refuse_unknown_names

            operators = {norm.label: norm.operator for norm in normalizations(session.cleaning.model)}
            others = {node.name: node.op_type for node in all_nodes(session.cleaning.model) if node.name}
            refuse_unknown_names(self.profile, normalizations=list(operators), operators={**others, **operators})
        return session


def rewrite_settings(profile: BuildProfile | None, checkpoint: Checkpoint | None = None) -> RewriteSettings:
    """The settings of ``profile`` for the rewriting; ``checkpoint`` are the weights given beside the model."""
    if profile is None:
        return RewriteSettings(checkpoint=checkpoint, optimize="auto", last_resorts=False)
    return RewriteSettings(
        skip=profile.rules.skip,
        training_mode=profile.training_mode,
        dynamic_quantization=profile.dynamic_quantization,
        mismatch=profile.mismatch,
        checkpoint=checkpoint,
        optimize=profile.optimize,
        last_resorts=profile.optimize != "auto" or profile.precision.type != "as-written",
        instance_norm=profile.instance_norm.settings(),
        group_norm=profile.group_norm.settings(),
    )


def prepare(
    opened: OpenedModel,
    snap: bool = False,
    on_loaded: Callable[[LoadedModel], None] = lambda loaded: None,
    needs_sizes: bool = True,
) -> Prepared:
    """Read the model and further weights, check every name in the profile, and fit one to the other.

    Every size of the profile is proved to fit the model; with ``snap`` those that do not are moved to ones that do. Only a
    build needs sizes where there is no profile. ``on_loaded`` is shown the model before any work is spent on it, and may
    refuse it.
    """
    with stage("load"):
        original, profile = load_model(opened.path), opened.profile
    on_loaded(original)
    loaded = original
    if profile is not None:
        from trtnorm_cli.profile.facts import as_profiled
        from trtnorm_cli.profile.names import refuse_unknown_names

        outputs = [value.name for value in original.proto.graph.output]
        refuse_unknown_names(profile, outputs=outputs, rules=[rule.name for rule in RULES])
        loaded = replace(original, proto=as_profiled(original.proto, profile))
    checkpoint = None
    if opened.weights is not None:
        with stage("weights"):
            checkpoint = load_checkpoint(opened.weights)
    proof = _proof(loaded, profile, snap) if needs_sizes or profile is not None else None
    prepared = Prepared(
        original=original,
        loaded=loaded,
        profile=None if proof is None else proof.profile,
        proof=proof,
        checkpoint=checkpoint,
        export=opened.export,
        source=opened.source,
    )
    weights = () if checkpoint is None else checkpoint.files
    libraries = map(Path, prepared.plugin_libraries)
    return replace(prepared, further=SourceFiles([*weights, *libraries, *prepared.calibration_files]))


def _proof(loaded: LoadedModel, profile: BuildProfile | None, snap: bool) -> Proof:
    with stage("sizes"):
        from trtnorm_cli.profile.fit import fit
        from trtnorm_cli.profile.model_input import inputs_of
        from trtnorm_cli.profile.prove import prove
        from trtnorm_cli.profile.start import start_for

        inputs = inputs_of(loaded.proto)
        return prove(loaded.proto, inputs, profile, fit(profile, inputs, partial(start_for, loaded.proto, inputs)), snap)
