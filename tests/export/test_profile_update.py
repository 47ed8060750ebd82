"""What an export learnt, written into the user's build profile."""

from __future__ import annotations

import pytest

from trtnorm_cli.errors import ProfileError
from trtnorm_cli.export.profile_update import learnt_profile, planned_update, suggestion
from trtnorm_cli.profile.load import load_profile, parse_profile
from trtnorm_cli.records.export import LearntDimension

HEIGHT = LearntDimension("H", (135, 540, 2160), (136, 544, 2160), 8, ("image[2]",))


def _updated(path, dimensions):
    """Write what was learnt, and return the changes."""
    update = planned_update(path, dimensions)
    update.write()
    return list(update.edits)


def test_lines_comments_and_order_stay(tmp_path):
    path = tmp_path / "cfg.yaml"
    path.write_text(
        "# top\ndims:   # sizes\n  N: 4\n  H: {min: 135, opt: 540, max: 2160}  # height\nbuilder: {workspace: 1GiB}\n"
    )
    changes = _updated(path, [HEIGHT])
    assert path.read_text() == (
        "# top\ndims:   # sizes\n  N: 4\n  H: {min: 136, opt: 544, max: 2160, multiple_of: 8}  # height\n"
        "builder: {workspace: 1GiB}\n"
    )
    assert [str(change) for change in changes] == ["dims.H.min: 135 → 136", "dims.H.opt: 540 → 544", "dims.H.multiple_of: 8"]
    assert _updated(path, [HEIGHT]) == []


def test_a_range_over_several_lines(tmp_path):
    path = tmp_path / "cfg.yaml"
    path.write_text("dims:\n  H:\n    min: 135 # small\n    opt: 540\n    max: 2160")
    _updated(path, [HEIGHT])
    assert path.read_text() == "dims:\n  H:\n    min: 136 # small\n    opt: 544\n    max: 2160\n    multiple_of: 8"


def test_an_older_multiple_is_replaced(tmp_path):
    path = tmp_path / "cfg.yaml"
    path.write_text("dims:\n  H: {min: 136, opt: 544, max: 2160, multiple_of: 4}\n")
    _updated(path, [HEIGHT])
    assert path.read_text() == "dims:\n  H: {min: 136, opt: 544, max: 2160, multiple_of: 8}\n"


def test_shapes_of_inputs(tmp_path):
    path = tmp_path / "cfg.yaml"
    shapes = "{min: [1, 3, 135], opt: [1, 3, 540], max: [1, 3, 2160]}"
    path.write_text(f"optimization_profiles:\n  - inputs:\n      image: {shapes}\n")
    _updated(path, [HEIGHT])
    assert "{min: [1, 3, 136], opt: [1, 3, 544], max: [1, 3, 2160]}" in path.read_text()


def test_what_cannot_be_edited_in_place_is_left_alone(tmp_path):
    path = tmp_path / "cfg.yaml"
    text = "optimization_profiles:\n  - inputs:\n      image: {min: 1x3x135, opt: 1x3x540, max: 1x3x2160}\n"
    path.write_text(text)
    with pytest.raises(ProfileError) as caught:
        _updated(path, [HEIGHT])
    assert "image.min[2]: 135 → 136" in (caught.value.hint or "")
    assert path.read_text() == text


def test_each_optimization_profile_keeps_its_own_range():
    profile = parse_profile(
        "optimization_profiles:\n- {name: a, dims: {H: {min: 135, opt: 200, max: 300}}}\n- {name: b, dims: {H: 540}}\n"
    )
    learnt = learnt_profile(profile, [HEIGHT])
    assert [one.dims["H"].corners() for one in learnt.optimization_profiles] == [(136, 200, 296), (544, 544, 544)]
    assert "optimization_profiles[0].dims.H.max: 300 → 296" in suggestion(profile, [HEIGHT])


def test_a_dimension_that_takes_everything_changes_nothing(tmp_path):
    free = LearntDimension("H", (1, 8, 16), (1, 8, 16), 1, ("x[0]",))
    path = tmp_path / "cfg.yaml"
    path.write_text("dims: {H: {min: 1, opt: 8, max: 16}}")
    assert _updated(path, [free]) == []
    assert load_profile(path).dims["H"].multiple_of is None
