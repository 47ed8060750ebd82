"""The page of a manifest: every section, every name escaped, nothing from elsewhere, small."""

from __future__ import annotations

import json
import re
from collections import Counter
from copy import deepcopy
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest
import yaml

from tests.report.page.conftest import NAMES, values_of
from tests.tensorrt.test_manifest import of_nothing
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.record import read
from trtnorm_cli.report.page import words
from trtnorm_cli.report.page.again import profile_text
from trtnorm_cli.tensorrt.manifest import Manifest

pytestmark = pytest.mark.report

VOID = {"meta", "input", "br", "hr", "img", "link"}
HOSTILE = "</td><script>alert(1)</script>"
MOST_BYTES = 5 << 20


class Page(HTMLParser):
    """A page as it is parsed: elements with their attributes, the text of each section, and what is not balanced."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: Counter[str] = Counter()
        self.words: dict[str, list[str]] = {"": []}
        self.faults: list[str] = []
        self._open: list[str] = []
        self._section, self._is_broken = "", False
        self.feed(text)
        self.close()
        self.faults += [f"{tag} stays open" for tag in self._open]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr":  # what stands around it is one word
            self._is_broken = True
            return
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
            self.words[self._section] = []
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes another element")
        if tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] not in ("script", "style"):
            words = self.words[self._section]
            if self._is_broken:
                data = words.pop() + data
            words.append(data)
        self._is_broken = False

    def text(self, section: str = "") -> str:
        """The words of a section, or of the whole page."""
        parts = self.words[section] if section else [word for words in self.words.values() for word in words]
        return " ".join(" ".join(parts).split())

    def count(self, tag: str, **attributes: str) -> int:
        return sum(t == tag and all(a.get(k) == v for k, v in attributes.items()) for t, a in self.elements)


SECTIONS = ["summary", "steps", "rewrites", "kernels", "norms", "sizes", "errors", "types", "remarks", "again"]


def page_of_values(values: dict[str, Any]) -> str:
    from trtnorm_cli.report.page.page import page_of

    return page_of(read(Manifest, values))


def test_there_are_manifests_of_seven_samples():
    assert len(NAMES) == 7


@pytest.mark.parametrize("name", NAMES)
class TestOfASample:
    def test_every_section_is_there_and_says_something(self, page, name):
        found = Page(page(name))
        assert found.faults == []
        assert [a["id"] for tag, a in found.elements if tag == "section"] == SECTIONS
        assert [section for section in SECTIONS if len(found.text(section)) < 40] == []

    def test_ids_are_unique_and_references_lead_somewhere(self, page, name):
        found = Page(page(name))
        ids = [a["id"] for _, a in found.elements if "id" in a]
        assert len(ids) == len(set(ids))
        for _, attributes in found.elements:
            for reference in ("aria-labelledby", "data-search", "data-found", "data-open", "data-close"):
                assert attributes.get(reference) in {None, *ids}
            if (target := attributes.get("href")) is not None:
                assert target.removeprefix("#") in ids

    def test_headings_are_in_order(self, page, name):
        levels = [int(tag[1]) for tag, _ in Page(page(name)).elements if re.fullmatch("h[1-6]", tag)]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))

    def test_tables_have_captions_and_scopes(self, page, name):
        found = Page(page(name))
        assert found.count("table") == found.count("caption") > 0
        assert [a for tag, a in found.elements if tag == "th" and "scope" not in a] == []

    def test_nothing_is_fetched(self, page, name):
        text = page(name)
        found = Page(text)
        assert [a for _, a in found.elements if any(k in a for k in ("src", "srcset", "action", "poster", "data"))] == []
        assert [tag for tag, _ in found.elements if tag in ("link", "iframe", "object", "embed", "img", "base")] == []
        assert "url(http" not in text
        assert "@import" not in text
        assert "default-src 'none'" in text

    def test_every_change_is_drawn_before_and_after_with_its_algebra_and_check(self, page, name):
        values, found = values_of(name), Page(page(name))
        words = found.text("rewrites")
        assert found.count("details", **{"class": "change"}) + found.count("details", **{"class": "change", "open": ""}) >= len(
            values["changes"]
        )
        for change in values["changes"]:
            assert change["node"] in words
            assert change["because"] in words
        nodes = [len(change["region"][side]) for change in values["changes"] for side in ("before", "after")]
        drawn = sum(tag == "svg" and (a.get("class") or "").startswith("graph") for tag, a in found.elements)
        assert drawn == sum(0 < count <= 60 for count in nodes)
        assert (found.count("math") > 0) is bool(values["changes"])

    def test_every_kernel_stands_with_its_nodes(self, page, name):
        words = Page(page(name)).text("kernels")
        for kernel in values_of(name)["network"]["kernels"]:
            for node in kernel.get("onnx_nodes", ()):
                assert node in words

    def test_every_output_has_its_error_at_every_shape(self, page, name):
        words = Page(page(name)).text("errors")
        for candidate in values_of(name)["comparison"]["candidates"]:
            for verdict in candidate["outputs"]:
                assert verdict["output"] in words
                assert verdict["trial"] in words

    def test_the_plots_have_data(self, page, name):
        pictures = re.findall(r'<svg[^>]* class="plot".*?</svg>', page(name), re.S)
        assert len(pictures) >= 2
        for picture in pictures:
            assert "NaN" not in picture
            assert len(re.findall(r"<path[^>]* d=\"M[^\"]{20,}", picture)) >= 1

    def test_the_profile_to_make_it_again_is_the_one_it_was_made_with(self, page, name):
        profile = values_of(name)["profile"]
        text = profile_text(profile)
        assert " ".join(text.split()) in Page(page(name)).text("again")
        again = BuildProfile.model_validate(yaml.safe_load(text)).model_dump(mode="json")
        assert known_parts(again, profile) == profile


def known_parts(again: Any, profile: Any) -> Any:
    """``again`` with the keys that ``profile`` has: a later release may know more."""
    if isinstance(again, dict) and isinstance(profile, dict):
        return {key: known_parts(again[key], profile[key]) for key in profile}
    if isinstance(again, list) and isinstance(profile, list) and len(again) == len(profile):
        return [known_parts(*pair) for pair in zip(again, profile, strict=True)]
    return again


def test_islands_of_float32_are_shown_with_their_reasons(page):
    words = Page(page("unet_fp16")).text("types")
    for kept in values_of("unet_fp16")["precision"]["kept"]:
        assert kept["node"] in words
        assert kept["reason"] in words


def test_what_half_precision_changed_besides_is_shown():
    values = values_of("unet_fp16")
    unseen = {"output": "y", "at": "default max, seed 1000003", "emulated": 0.0037, "network": None}
    values["precision"] |= {
        "scaled": [{"tensor": "stem_output", "exponent": 15}],
        "unseen": [unseen],
        "constants": [{"tensor": "mask", "node": "Add_3", "before": -3.4e38, "after": -65504.0, "reason": "it masks scores"}],
    }
    found = Page(page_of_values(values))
    assert found.faults == []
    words = found.text("types")
    assert "default max, seed 1000003: new, nothing was settled on it" in words
    assert "stem_output 1/32,768" in words
    assert "it masks scores" in words


def test_sizes_are_shown_with_what_is_legal(page):
    words = Page(page("flow")).text("sizes")
    assert "remainder 0, 5, 6 or 7 when divided by 8" in words
    assert "node /encoder/Add (Add)" in words
    assert "multiples of 2" in Page(page("unet_fp16")).text("sizes")
    assert "136" in words
    assert "3840" in words


def test_an_empty_manifest_has_every_section_too():
    from trtnorm_cli.report.page.page import page_of

    found = Page(page_of(of_nothing()))
    assert found.faults == []
    assert [a["id"] for tag, a in found.elements if tag == "section"] == SECTIONS
    assert "Not compared with the original" in found.text("summary")


@pytest.mark.parametrize("hostile", [HOSTILE, "{{ 7 * 7 }}", "' onload='x", '"><svg onload=alert(1)>', "a\u2028b", "&lt;b&gt;"])
def test_every_name_is_escaped(hostile):
    """All names of a model are replaced; the page has the same elements, and shows the name."""
    values = values_of("resnet18")
    kept = deepcopy(values)
    for change in values["changes"]:
        change["node"] = change["tensor"] = change["because"] = change["warning"] = hostile
        change["check"] |= {"shapes": {hostile: [1]}, "evaluated_with": hostile}
        for node in (*change["region"]["before"], *change["region"]["after"]):
            node["name"] = node["operator"] = hostile
        change["region"]["constants"] = dict.fromkeys(change["region"]["constants"], hostile)
    for kernel in values["network"]["kernels"]:
        if kernel["onnx_nodes"]:
            kernel |= {"name": hostile, "type": hostile, "onnx_nodes": [hostile]}
    for outcome in values["normalizations"]["outcomes"]:
        outcome |= {"node": hostile, "operator": hostile}
    for candidate in values["comparison"]["candidates"]:
        for verdict in candidate["outputs"]:
            verdict |= {"output": hostile, "trial": hostile, "reason": hostile}
    values["rules"] = dict.fromkeys(values["rules"], f"{hostile}\n\n    {hostile}\n\nSource: {hostile}")
    values |= {"warnings": [hostile], "rewrite_warnings": [hostile]}
    values["source"]["file"] = values["engine"]["file"] = hostile
    text = page_of_values(values)
    found, before = Page(text), Page(page_of_values(kept))
    assert found.faults == []
    assert found.count("script") == before.count("script") == 1
    assert not any(key.startswith("on") for _, attributes in found.elements for key in attributes)
    assert {tag for tag, _ in found.elements} <= {tag for tag, _ in before.elements} | {"mtext", "mtable"}
    assert (
        re.search(r"<script>(.*?)</script>", text, re.S)[1]
        == re.search(r"<script>(.*?)</script>", page_of_values(kept), re.S)[1]
    )
    for section in ("rewrites", "kernels", "norms", "errors", "remarks"):
        assert " ".join(hostile.split()) in found.text(section)


@pytest.mark.parametrize("unfit", ["\x00", "\x1b", "\ud800", "\ufffe"])
def test_a_name_with_characters_that_no_page_can_have(unfit):
    """Vega's converter would end the whole process at such a label."""
    values = values_of("resnet18")
    for candidate in values["comparison"]["candidates"]:
        for verdict in candidate["outputs"]:
            verdict["output"] = f"a{unfit}b"
    text = page_of_values(values)
    assert unfit not in text
    assert "a\ufffdb" in Page(text).text("errors")
    text.encode("utf-8")


def large(nodes: int) -> dict[str, Any]:
    """A manifest as that of a model with so many nodes: one of six is a changed normalization, and half are kernels."""
    values = values_of("resnet18")
    count = -(-nodes // 6 // len(values["changes"]))
    text = json.dumps({"changes": values["changes"], "outcomes": values["normalizations"]["outcomes"]})
    copies = [json.loads(text.replace("node_", f"/model/encoder/layers.{i}/node_")) for i in range(count)]
    kernels = values["network"]["kernels"]
    values["changes"] = [change for copy in copies for change in copy["changes"]]
    values["normalizations"]["outcomes"] = [one for copy in copies for one in copy["outcomes"]]
    values["network"]["kernels"] = [
        {**kernel, "onnx_nodes": [f"/model/encoder/layers.{i}/{node}" for node in (*kernel["onnx_nodes"], "Mul", "Add")]}
        for i in range(nodes // len(kernels) // 2)
        for kernel in kernels
    ]
    values["cost"]["kernels"] *= nodes // len(kernels) // 2
    return values


def test_the_page_of_a_large_model_is_small():
    values = large(3000)
    assert len(values["changes"]) >= 500
    assert len(values["network"]["kernels"]) > 1400
    assert values["cost"]["kernels"]
    assert len(page_of_values(values).encode()) < MOST_BYTES


def with_cost(values: dict[str, Any]) -> dict[str, Any]:
    """``values`` with an estimate for each kernel, the last of them the costliest, and one that nobody asked for."""
    names = [
        kernel["name"] for kernel in values["network"]["kernels"] if kernel["type"] not in ("signal", "wait", "shape_call")
    ]
    kernels = [
        {"name": name, "read": 1024, "written": 2048, "operations": 10, "us": float(i + 1), "bound": "memory"}
        for i, name in enumerate(names)
    ]
    kernels[0] |= {"unasked": "transposition", "note": "the slower way was assumed"}
    total = {"launches": len(names), "compiled_on_device": 3, "bytes": 4 << 20, "us": 2500.0, "unasked_us": 250.0, "unsized": 2}
    return {**values, "cost": {"device": "rtx-4090", "total": total, "kernels": kernels}}


def test_kernels_are_sorted_by_their_estimated_time():
    values = with_cost(values_of("resnet18"))
    words = Page(page_of_values(values)).text("kernels")
    assert "an estimate for rtx-4090 at the sizes that the engine is tuned for: 2.50 ms a run, 4.0 MiB moved" in words
    assert "10 % of the time goes to 1 transposition that no node asks for" in words
    assert "transposition, not asked for" in words
    assert "the slower way was assumed" in words
    assert "Limited by" in words
    costs = [one["us"] for one in values["cost"]["kernels"]]
    places = [words.index(f" {us:.1f} µs 1.0 KiB 2.0 KiB 10 memory") for us in sorted(costs, reverse=True)]
    assert places == sorted(places)
    assert "2.50 ms" in Page(page_of_values(values)).text("summary")


def test_a_kernel_without_an_estimate_is_shown_last():
    values = with_cost(values_of("resnet18"))
    gone = values["cost"]["kernels"].pop()
    values["network"]["kernels"].append({"unread": "Name: a line of another form"})
    words = Page(page_of_values(values)).text("kernels")
    assert words.index("a line of another form") > words.index(values["cost"]["kernels"][0]["name"])
    assert gone["name"] in page_of_values(values) or any(
        node in words for k in values["network"]["kernels"] if k.get("name") == gone["name"] for node in k["onnx_nodes"]
    )


def test_the_difference_along_the_depth_is_drawn():
    values = values_of("resnet18")
    for candidate in values["comparison"]["candidates"]:
        candidate.pop("depth", None)
    without = page_of_values(values).count('class="plot"')
    points = [{"place": i, "tensor": f"t{i}", "distance": 1e-8 * i} for i in range(30)]
    for candidate in values["comparison"]["candidates"]:
        candidate["depth"] = {"at": "default min", "tensors": 33, "other": 3, "points": points}
    text = page_of_values(values)
    words = Page(text).text("errors")
    assert "33 tensors of the rewritten model can be held to one of the original" in words
    assert "3 of them carry another meaning" in words
    assert "at most 2.9×10⁻⁷ away, at t29 (default min)" in words
    assert text.count('class="plot"') == without + 1


def test_a_manifest_of_an_older_release_says_what_it_lacks():
    values = values_of("flow") | {"changes": values_of("resnet18")["changes"]}
    for key in ("rules", "cost"):
        values.pop(key, None)
    values["normalizations"].pop("outcomes")
    values["proof"].pop("sizes")
    for change in values["changes"]:
        change.pop("region")
    found = Page(page_of_values(values))
    assert found.faults == []
    assert "left out what a drawing needs" in found.text("rewrites")
    assert "node_conv2d, node__native_batch_norm_legit_no_training__0 became node_conv2d." in found.text("rewrites")
    assert "does not say what became of each" in found.text("norms")
    assert "does not say which sizes the model can have" in found.text("sizes")
    assert "Every size is fixed" not in found.text("sizes")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (12.345, "12.3"), (999, "999"), (1000, "1,000"), (6553.4, "6,553"), (-6553.4, "−6,553"), (65534, "6.6×10⁴"),
     (0.012, "0.012"), (4.7e-7, "4.7×10⁻⁷"), (None, "–"), (float("inf"), "∞")],
)  # fmt: skip
def test_numbers(value, shown):
    assert words.number(value) == shown


def test_a_name_is_broken_where_a_part_of_it_begins(page):
    assert "<code>/attention<wbr>/norm<wbr>/GroupNormalization</code>" in page("unet_fp16")
