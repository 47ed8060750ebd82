"""Whatever ``trtnorm inspect`` describes, as text."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.target import Target


def print_inspection(
    out: Console,
    target: Target,
    described: object,
    save_to: Path | None,
    verbosity: Verbosity,
    every: bool,
    by_name: bool,
) -> None:
    """Print what ``api.inspect`` says of ``target``, in the long form where ``every`` is wanted.

    With ``by_name`` it is about nodes that the user named.
    """
    from trtnorm_cli.records.export import ExportRecord

    if isinstance(described, ExportRecord):
        from trtnorm_cli.report.export import print_export_manifest

        print_export_manifest(out, target.path, described, every, verbosity)
    elif target.is_pytorch:
        from trtnorm_cli.export.inspecting import ModuleDescription
        from trtnorm_cli.report.norm_modules import print_module

        assert isinstance(described, ModuleDescription)
        print_module(out, target.text, described, every, verbosity)
    elif target.kind in ("engine", "manifest"):
        from trtnorm_cli.report.engine import print_engine
        from trtnorm_cli.tensorrt.engine_file import EngineDescription

        assert isinstance(described, EngineDescription)
        print_engine(out, described, every, by_name)
    elif target.kind == "network":
        from trtnorm_cli.report.network import print_network
        from trtnorm_cli.tensorrt.network.describe import NetworkDescription

        assert isinstance(described, NetworkDescription)
        print_network(out, described, save_to, verbosity, every, by_name)
    else:
        from trtnorm_cli.report.model import print_model
        from trtnorm_cli.rewrite.describe import ModelDescription

        assert isinstance(described, ModelDescription)
        print_model(out, target.path, described, every, verbosity)
