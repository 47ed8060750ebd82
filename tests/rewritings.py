"""One rewriting of a model, as the commands make it from a session."""

from __future__ import annotations

from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.ambiguities import ProofShapes
from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession


def rewrite(loaded: LoadedModel, proof_shapes: ProofShapes | None = None, settings: RewriteSettings | None = None) -> Rewriting:
    """Clean ``loaded``, resolve its ambiguities and apply the rules, each change proved at ``proof_shapes``.

    Without those input shapes, small ones are chosen. The loaded model is not changed.
    """
    return RewritingSession(loaded, proof_shapes, settings or RewriteSettings()).rewrite()
