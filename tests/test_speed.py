"""What benchmarks/speed.py makes of results: several become one, and one becomes the tables of docs/performance.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import speed
from benchmarks.speed_merge import merge
from benchmarks.speed_page import TABLES, page

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


def run(seconds: float, code: int | None = 0, **more: Any) -> dict[str, Any]:
    return {
        "code": code,
        "wall_s": seconds,
        "cpu_s": seconds,
        "largest_mb": 100.0,
        "family_mb": 90.0,
        "private_mb": 80.0,
        **more,
    }


def results(**parts: Any) -> dict[str, Any]:
    known = {"machine": "a machine", "peers": ["onnx==1"], "models": {"m": {"bytes": 10**6, "nodes": 3, "norms": {}}}}
    return {**known, "rewrite": {}, "build": {}, **parts}


def written(folder: Path, name: str, known: dict[str, Any]) -> Path:
    (folder / name).write_text(json.dumps(known))
    return folder / name


def cells(text: str, table: str, row: str) -> list[str]:
    inside = text.partition(f"<!-- {table} -->")[2].partition(f"<!-- end of {table} -->")[0]
    found = re.search(rf"^\| {row} \|(.*)\|$", inside, re.MULTILINE)
    assert found is not None, inside
    return [cell.strip() for cell in found.group(1).split("|")]


def test_results_of_several_runs_become_one(tmp_path):
    ours = results(rewrite={"m": {"trtnorm": {"runs": [run(1.0), run(3.0)], "norms": {}}}})
    more = results(rewrite={"m": {"trtnorm": {"runs": [run(2.0)]}, "onnxsim": {"runs": [run(9.0)], "norms": {}}}})
    parts = {"phases of builds": {"m": {"trtnorm": {"runs": [], "seconds": {"total": 4.0, "rewrite": 3.0}}}}}
    files = [written(tmp_path, f"{i}.json", known) for i, known in enumerate((ours, more, results(**parts)))]
    merge(tmp_path / "all.json", files)
    text = (tmp_path / "page.md").write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page(tmp_path / "all.json", tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert cells(text, "processor seconds", "m") == ["2.0 (1.0–3.0)", "9.0", "0.2"]
    assert cells(text, "phases of builds", "rewrite") == ["3.00"]


def test_results_of_unlike_machines_are_not_put_together(tmp_path):
    files = [written(tmp_path, "a.json", results()), written(tmp_path, "b.json", {**results(), "machine": "another"})]
    with pytest.raises(SystemExit, match="a machine, and another"):
        merge(tmp_path / "all.json", files)


def test_the_page_has_a_place_for_every_table():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in TABLES if f"<!-- {name} -->" not in text or f"<!-- end of {name} -->" not in text] == []


def test_what_failed_is_told_apart_from_what_took_too_long(tmp_path):
    row = {
        "trtnorm": {"runs": [run(1.0)], "norms": {}},
        "onnxsim": {"runs": [run(9.0, None)]},
        "Polygraphy": {"runs": [run(1.0, 1)]},
    }
    (tmp_path / "page.md").write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page(written(tmp_path, "a.json", results(rewrite={"m": row})), tmp_path / "page.md")
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert cells(text, "processor seconds", "m") == ["1.0", "failed (1)", "too long", ""]


def test_a_peer_whose_normalizations_nobody_counted_is_not_the_best(tmp_path):
    """As with ``--times-only``: it may have left them all."""
    row = {"trtnorm": {"runs": [run(1.0)], "norms": {}}, "onnxsim": {"runs": [run(0.1)]}}
    (tmp_path / "page.md").write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    page(written(tmp_path, "a.json", results(rewrite={"m": row})), tmp_path / "page.md")
    assert cells((tmp_path / "page.md").read_text(encoding="utf-8"), "processor seconds", "m") == ["1.0", "0.1", ""]


def test_models_that_are_there_need_no_library(tmp_path, monkeypatch):
    monkeypatch.setattr(speed, "environment", lambda *_: pytest.fail("made an environment"))
    for name in ("resnet50", "chain_83mb", "unasked"):
        (tmp_path / f"{name}.onnx").write_bytes(b"")
    found = speed.made_models(tmp_path, None, "resnet5*,chain_*")
    assert sorted(path.stem for path in found) == ["chain_83mb", "resnet50"]


def test_a_pattern_without_a_model_is_named():
    assert speed.chosen(("resnet50", "bert_base", "unet3d"), "res*,unet3d") == ["resnet50", "unet3d"]
    with pytest.raises(SystemExit, match=r"like 'resnet50 bert_base'; there are resnet50, bert_base"):
        speed.chosen(("resnet50", "bert_base"), "resnet50 bert_base")


def test_a_checkout_is_compiled_as_installed_tools_are(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "trtnorm_cli").mkdir()
    (tmp_path / "trtnorm_cli" / "one.py").write_text("ONE = 1\n")
    speed.compiled(tmp_path)
    assert [path.suffix for path in (tmp_path / "trtnorm_cli" / "__pycache__").iterdir()] == [".pyc"]
    bench = speed.Bench(
        tmp_path, {}, tmp_path / "speed.json", {"before": tmp_path}, Path("python"), (), 1, False, (), (), 1.0,
    )  # fmt: skip
    assert "PYTHONDONTWRITEBYTECODE" not in bench.environment("before")
    assert bench.environment("before")["PYTHONPATH"] == str(tmp_path)


def test_a_table_of_which_nothing_was_measured_stays_as_it_is(tmp_path):
    before = PAGE.read_text(encoding="utf-8")
    (tmp_path / "page.md").write_text(before, encoding="utf-8")
    known = results(rewrite={"m": {"trtnorm": {"runs": [run(2.0)]}}})
    page(written(tmp_path, "a.json", known), tmp_path / "page.md")
    after = (tmp_path / "page.md").read_text(encoding="utf-8")

    def inside(text: str, table: str) -> str:
        return text.partition(f"<!-- {table} -->")[2].partition(f"<!-- end of {table} -->")[0]

    kept = {table for table in TABLES if inside(before, table) == inside(after, table)}
    assert kept == {"what is left", "builds", "curves", "phases", "phases of builds"}
