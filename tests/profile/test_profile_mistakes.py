"""Every known mistake in optimization profiles: exit code 2, the line, and a fix that builds when it is applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import saved
from tests.profile.mistakes import MISTAKES, Mistake, repaired
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared, prepare
from trtnorm_cli.tensorrt.build_request import shapes_and_settings
from trtnorm_cli.tensorrt.request import BuildResult

BY_NAME = pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake.name for mistake in MISTAKES])


def prepared(mistake: Mistake, text: str | None, folder: Path) -> Prepared:
    profile = folder / "cfg.yaml"
    if text is not None:
        profile.write_text(text, encoding="utf-8")
    return prepare(OpenedModel.of_file(saved(mistake.model, folder / "model.onnx"), profile if text is not None else None))


@BY_NAME
def test_the_message_has_the_line_and_the_fix_fits(mistake, tmp_path):
    with pytest.raises(ProfileError) as caught:
        prepared(mistake, mistake.text, tmp_path)
    error = caught.value
    assert error.exit_code == 2
    assert mistake.message in error.summary
    profile, line = tmp_path / "cfg.yaml", error.where and error.where.split(": ")[0]
    whole = None if mistake.text is None else str(profile)
    assert line == (whole if mistake.line is None else f"{profile}:{mistake.line}")
    fitted = prepared(mistake, repaired(mistake.text, error), tmp_path).fitted
    assert fitted.profiles


@pytest.mark.rtx
@BY_NAME
def test_the_fix_builds(mistake, tmp_path):
    with pytest.raises(ProfileError) as caught:
        prepared(mistake, mistake.text, tmp_path)
    result = build(prepared(mistake, repaired(mistake.text, caught.value), tmp_path), tmp_path)
    assert result.errors == ()
    assert result.ok


def build(ready: Prepared, folder: Path) -> BuildResult:
    from tests.tensorrt.builds import built

    profiles, _ = shapes_and_settings(ready)
    return built(ready.loaded.proto, folder, profiles)
