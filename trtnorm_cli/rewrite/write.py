"""Write a rewritten model to its file."""

from __future__ import annotations

from pathlib import Path

from trtnorm_cli.files import require_free
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.save import data_file_of, save_model
from trtnorm_cli.placing import put_in_place
from trtnorm_cli.progress import stage
from trtnorm_cli.rewrite.rewriting import Rewriting, require_valid
from trtnorm_cli.scratch import scratch_beside


def rewrite_to(
    rewriting: Rewriting, source: LoadedModel, target: Path, profile: Path | None = None, origin: Path | None = None
) -> list[Path]:
    """Save a rewriting under ``target`` after the ONNX checker has passed it; returns the files written.

    ``source`` is the model it was made from, ``profile`` the build profile, ``origin`` the file of a PyTorch model: none of
    them may be overwritten.
    """
    sources = [source.path, *source.data_files, *(path for path in (profile, origin) if path is not None)]
    require_free([target, data_file_of(target)], sources)
    rewriting.require_all_checks_passed()
    with stage("save"), scratch_beside(target) as folder:
        written = save_model(rewriting.model, folder / target.name, rewriting.folder, is_result=True)
        require_valid(source, folder / target.name)
        source.require_unchanged()
        put_in_place({path: target.with_name(path.name) for path in written}, folder)
    return [target.with_name(path.name) for path in written]
