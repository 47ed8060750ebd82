"""Two targets held against each other, each of which is a PyTorch model, an ONNX file, a network of TensorRT, or an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from trtnorm_cli.differences.engines import are_told_apart, engine_facts, engine_notes, parts
from trtnorm_cli.differences.facts import MODEL, Fact, differences
from trtnorm_cli.differences.graphs import graph_diff
from trtnorm_cli.differences.mixed import layers_fact, origin_note, size_facts, source_fact
from trtnorm_cli.differences.models import model_facts, norms_fact, with_other_metadata
from trtnorm_cli.differences.modules import modules_diff
from trtnorm_cli.differences.record import Diff, Difference, GraphDiff, Side
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.export.inspecting import inspect_module
from trtnorm_cli.export.manifest_file import read_export_manifest
from trtnorm_cli.export.opening import opened_model
from trtnorm_cli.export.options import ExportOptions
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.load import LoadedModel, load_model, read_model
from trtnorm_cli.onnx_model.source_files import SourceFiles
from trtnorm_cli.progress import stage
from trtnorm_cli.records.export import NormModule
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.target import MANIFEST_SUFFIX, Target, parse_target
from trtnorm_cli.tensorrt.engine_file import manifest_beside
from trtnorm_cli.tensorrt.manifest import Manifest
from trtnorm_cli.tensorrt.network import NetworkTranslation, network_of

_KINDS = {"onnx": "ONNX model", "network": "network of TensorRT", "engine": "engine"}
_EXPORTED = "export it with `trtnorm export` and compare the engine with the ONNX file"


@dataclass(frozen=True)
class Options:
    """How two targets are compared. ``exported`` asks for the graphs of PyTorch models, ``profile`` has their sizes."""

    exported: bool = False
    profile: Path | None = None
    backend: str | None = None
    exporting: ExportOptions = ExportOptions()


def compare_targets(first: str, second: str, options: Options | None = None) -> Diff:
    """The differences between two targets.

    PyTorch models are exported where the other is an ONNX file or a network, or where that is asked for; else their
    normalization modules are compared. Raises as their readers do, and ``UsageProblem`` for an engine beside a PyTorch model
    that it was not built from.
    """
    options = options or Options()
    targets = _target(first), _target(second)
    sides = tuple(Side(target.text, _KINDS.get(target.kind, "PyTorch model")) for target in targets)
    files = SourceFiles([target.path for target in targets if target.path.is_file()])
    with files.explaining_errors():
        found = _found(targets, options)
    files.require_unchanged()
    return replace(found, first=sides[0], second=sides[1])


def _found(targets: tuple[Target, Target], options: Options) -> Diff:
    kinds = {_KINDS.get(target.kind, "PyTorch model") for target in targets}
    if kinds == {"engine"}:
        return _engines(_manifest(targets[0]), _manifest(targets[1]))
    if kinds == {"PyTorch model"} and not options.exported:
        return _modules(_norm_modules(targets[0], options), _norm_modules(targets[1], options))
    if kinds == {"PyTorch model", "engine"}:
        return _module_and_engine(targets, options)
    if "engine" in kinds:
        return _graph_and_engine(targets, options)
    with _opened(targets[0], options) as one, _opened(targets[1], options) as other:
        return _graphs(one, other)


def _target(text: str) -> Target:
    if text.endswith(".json"):
        return Target("engine", str(Path(text)))
    return parse_target(text)


_NOBODY = Side("", "")


def _diff(found: list[Difference], notes: list[str], graph: GraphDiff | None = None) -> Diff:
    return Diff(first=_NOBODY, second=_NOBODY, differences=tuple(found), graph=graph, notes=tuple(notes))


def _engines(first: Manifest, second: Manifest) -> Diff:
    found = differences(engine_facts(first), engine_facts(second))
    found = [one for one in found if one.kind != "time" or are_told_apart(first, second)]
    return replace(_diff(found, engine_notes(first, second)), parts=tuple(parts(first, second)))


def _modules(first: tuple[NormModule, ...], second: tuple[NormModule, ...]) -> Diff:
    note = "of parameters only running statistics were compared, by their smallest and largest value; --exported compares all"
    return replace(_diff([], [note]), modules=modules_diff(first, second))


def _module_and_engine(targets: tuple[Target, Target], options: Options) -> Diff:
    """The modules of a PyTorch model against those that the engine's manifest lists of the model that it was built from."""
    modules = []
    # An engine that lists no modules is refused before the other's model is run.
    for target in sorted(targets, key=lambda target: target.kind != "engine"):
        if target.kind == "engine":
            manifest = _manifest(target)
            if manifest.export is None:
                what = "the engine was built from an ONNX file, and its manifest lists no modules of PyTorch"
                raise UsageProblem(what, target.text, _EXPORTED)
            modules.append(manifest.export.normalizations)
        else:
            modules.append(_norm_modules(target, options))
    first, second = modules if targets[0].kind == "engine" else reversed(modules)
    return _modules(first, second)


def _manifest(target: Target) -> Manifest:
    if target.path.suffix == MANIFEST_SUFFIX and read_export_manifest(target.path) is not None:
        model = target.path.with_suffix("")
        raise UsageProblem("this is the manifest of an export", target.text, f"compare the model itself: {model}")
    return manifest_beside(target.path)[1]


def _norm_modules(target: Target, options: Options) -> tuple[NormModule, ...]:
    return inspect_module(target, options.exporting.weights).normalizations


@dataclass(frozen=True)
class _Opened:
    """A graph to compare: its model, and what TensorRT said of it where it is a network."""

    model: LoadedModel
    network: NetworkTranslation | None = None

    def facts(self) -> list[Fact]:
        """The facts about the graph. A network has no origin of its own, and its metadata are the translation's."""
        facts = model_facts(self.model)
        if self.network is None:
            return facts
        kept = [fact for fact in facts if fact.kind in ("types", "sizes", "operators", "size")]
        built = Fact("versions", "parsed by", f"{self.network.backend} {self.network.version}")
        return [built, *kept, layers_fact(self.network)]


@contextmanager
def _opened(target: Target, options: Options) -> Iterator[_Opened]:
    with ExitStack() as stack:
        if target.kind == "network":
            load_model(target.path)
            file = stack.enter_context(Scratch("trtnorm-diff-")) / "network.onnx"
            network = network_of(target.path, file, options.backend)
            yield _Opened(LoadedModel(file, read_model(file)), network)
        elif target.is_pytorch:
            exported = stack.enter_context(opened_model(target, options.profile, options.exporting))
            yield _Opened(load_model(exported.path))
        else:
            yield _Opened(load_model(target.path))


def _graphs(first: _Opened, second: _Opened) -> Diff:
    own, others = first.facts(), second.facts()
    own, others = with_other_metadata(own, others), with_other_metadata(others, own)
    same_file = first.network is None and second.network is None and first.model.sha256 == second.model.sha256
    if same_file:
        return _diff(differences([f for f in own if f.what != MODEL], others), ["the two files have the same bytes"])
    with stage("match"):
        graph = graph_diff(first.model, second.model)
    found = differences(own, others)
    if (graph.regions or graph.changed) and first.network is None and second.network is None:
        found += differences([norms_fact(first.model)], [norms_fact(second.model)])
    return _diff(found, _graph_notes(graph), graph)


def _graph_notes(graph: GraphDiff) -> list[str]:
    if not graph.regions and not graph.changed and not graph.weights:
        return ["the graphs are equal but for names" if graph.renamed else "the graphs are equal"]
    return []


def _graph_and_engine(targets: tuple[Target, Target], options: Options) -> Diff:
    engine = 0 if targets[0].kind == "engine" else 1
    manifest = _manifest(targets[engine])
    with _opened(targets[1 - engine], options) as opened:
        facts, built, notes = _beside_engine(opened, manifest)
    pair = (built, facts) if engine == 0 else (facts, built)
    return _diff(differences(*pair), notes)


def _beside_engine(opened: _Opened, manifest: Manifest) -> tuple[list[Fact], list[Fact], list[str]]:
    built = [fact for fact in engine_facts(manifest) if fact.what != MODEL]
    versions = manifest.versions
    parsed = Fact("versions", "parsed by", f"{versions.backend} {versions.tensorrt}")
    own, others = size_facts(opened.model, manifest)
    if opened.network is not None:
        note = "the engine's network is that of the model after its rewriting"
        return [*_shared(opened.facts), *own], [*built, parsed, *others], [note]
    origin = origin_note(opened.model, manifest)
    facts = [*_shared(opened.facts), *own]
    if origin is not None:
        facts = [fact for fact in facts if fact.what != MODEL]
    else:
        facts.append(norms_fact(opened.model))
    note = origin or "the engine was built from another file, by its digest"
    return facts, [*built, source_fact(manifest), *others], [note]


def _shared(facts: Callable[[], list[Fact]]) -> list[Fact]:
    """The facts that a graph and an engine can share: of sizes, an engine has profiles."""
    return [fact for fact in facts() if fact.kind not in ("sizes", "operators", "size", "metadata")]
