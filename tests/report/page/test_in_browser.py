"""Pages in Chromium: nothing breaks, nothing is cut off, all of it works with a keyboard. Needs chromium and chromedriver.

``AXE_CORE`` names axe.min.js, which ``make axe`` fetches from npm.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.report.page.conftest import NAMES, values_of
from tests.report.page.test_page import SECTIONS, large, page_of_values

pytestmark = [pytest.mark.report, pytest.mark.browser]

VIEWS = [(400, "light"), (400, "dark"), (1400, "light"), (1400, "dark")]
AXE = os.environ.get("AXE_CORE", "build/axe/node_modules/axe-core/axe.min.js")
_READY_S = 2.0
# The others have nothing that these have not; `make axe` and the slow tests open all.
_OFTEN = {"resnet18", "unet_fp16"}
SAMPLES = [pytest.param(name, marks=() if name in _OFTEN else pytest.mark.slow) for name in NAMES]


def opened(chromium: Any, text: str, folder: Path, width: int = 1400, scheme: str = "light", media: str = "screen") -> Any:
    """The page ``text`` in a window of this width. What an earlier page logged is forgotten."""
    file = folder / "report.html"
    file.write_text(text, encoding="utf-8")
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
    chromium.get_log("browser")
    chromium.get(file.as_uri())
    return chromium


@pytest.mark.parametrize("name", SAMPLES)
def test_a_page_at_every_width_and_in_every_light(chromium, page, tmp_path, name):
    for width, scheme in VIEWS:
        at = opened(chromium, page(name), tmp_path, width, scheme)
        assert at.get_log("browser") == []
        wide, inner = at.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide <= inner == width
        shown = at.execute_script("return [...document.querySelectorAll('main > section')].map(s => [s.id, s.offsetHeight])")
        assert [section for section, _ in shown] == SECTIONS
        assert all(height > 60 for _, height in shown)
        plots = at.execute_script(
            "return [...document.querySelectorAll('svg.plot')].map(s => [s.querySelectorAll('path[d]').length, s.clientWidth])"
        )
        assert plots
        assert all(marks >= 2 and 200 < size <= width for marks, size in plots)
        dark = at.execute_script("return getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
        assert dark is (scheme == "dark")


@pytest.mark.parametrize("name", SAMPLES)
def test_axe_finds_nothing(chromium, page, tmp_path, name):
    if not Path(AXE).is_file():
        pytest.skip("axe-core is not here; `make axe` fetches it from npm")
    script = Path(AXE).read_text(encoding="utf-8")
    for width, scheme in VIEWS:
        at = opened(chromium, page(name), tmp_path, width, scheme)
        at.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
        at.execute_script(script)
        found = at.execute_async_script(
            "const done = arguments[0]; axe.run(document).then(r => done([r.passes.length, r.violations.map(v => "
            "`${v.id}: ${v.nodes.length} times, first ${v.nodes[0].html.slice(0, 200)} ${v.nodes[0].failureSummary}`)]))"
        )
        assert found[1] == []
        assert found[0] > 20


def test_a_table_is_sorted_and_searched_with_the_keyboard(chromium, page, tmp_path):
    from selenium.webdriver.common.keys import Keys

    at = opened(chromium, page("vit"), tmp_path)
    rows = (
        "return [...document.querySelectorAll('#kernel-table tbody tr')].filter(r => !r.hidden).map(r => r.cells[0].innerText)"
    )
    button = at.find_element("css selector", "#kernel-table thead button")
    at.execute_script("arguments[0].focus()", button)
    button.send_keys(Keys.ENTER)
    falling = [int(text) for text in at.execute_script(rows)]
    assert falling == sorted(falling, reverse=True)
    button.send_keys(Keys.SPACE)
    assert [int(text) for text in at.execute_script(rows)] == sorted(falling)
    assert at.execute_script("return arguments[0].parentElement.ariaSort", button) == "ascending"
    field = at.find_element("css selector", "[data-search='kernel-table']")
    field.send_keys("gemm")
    found = at.execute_script(rows)
    assert 0 < len(found) < len(falling)
    assert at.find_element("css selector", "[data-found='kernel-table']").text == f"{len(found)} of {len(falling)}"


def test_all_of_the_page_can_be_reached_by_tab(chromium, page, tmp_path):
    """The first stop leads past the list of contents, and every stop can be seen."""
    from selenium.webdriver.common.keys import Keys

    at = opened(chromium, page("style"), tmp_path)
    stops = []
    for _ in range(400):
        at.switch_to.active_element.send_keys(Keys.TAB)
        stop = at.execute_script(
            "const e = document.activeElement; return e === document.body ? null : "
            "[e.tagName, e.textContent.slice(0, 40), getComputedStyle(e).outlineStyle]"
        )
        if stop is None:
            break
        stops.append(stop)
    assert stops[0][1] == "Skip to the content"
    assert {"A", "SUMMARY", "BUTTON", "INPUT"} <= {tag for tag, _, _ in stops}
    assert {outline for _, _, outline in stops} == {"solid"}


def test_a_page_without_scripts_shows_everything(chromium, page, tmp_path):
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        at = opened(chromium, page("resnet18"), tmp_path)
        assert len(at.find_elements("css selector", "#kernel-table tbody tr")) == len(values_of("resnet18")["cost"]["kernels"])
        assert not at.find_element("css selector", "#kernels .tools").is_displayed()
    finally:
        chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_hostile_script_does_not_run(chromium, page, tmp_path):
    """The policy of the page lets its own script run alone, should a name ever become markup."""
    text = page("resnet18").replace("<main", "<script>window.stolen = 1</script><main", 1)
    at = opened(chromium, text, tmp_path)
    assert at.execute_script("return window.stolen") is None
    assert at.execute_script("return document.querySelectorAll('.sort').length") > 0


def test_it_prints_with_everything_open(chromium, page, tmp_path):
    at = opened(chromium, page("resnet18"), tmp_path, 800)
    short = at.execute_script("return document.querySelectorAll('details[open]').length")
    at.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert at.execute_script("return document.querySelectorAll('details:not([open])').length") == 0
    at.execute_script("dispatchEvent(new Event('afterprint'))")
    assert at.execute_script("return document.querySelectorAll('details[open]').length") == short
    pdf = at.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"]
    assert len(pdf) > 100_000


@pytest.mark.slow
def test_the_page_of_a_large_model_is_ready_in_two_seconds(chromium, tmp_path):
    """In seconds of the main thread, because what else a machine does makes a page wait, not compute."""
    chromium.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    at = opened(chromium, page_of_values(large(3000)), tmp_path)
    at.find_element("css selector", "[data-search='kernel-table']").send_keys("layers.7/")
    at.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")
    measured = {one["name"]: one["value"] for one in at.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]}
    assert at.find_element("css selector", "[data-found='kernel-table']").text.split(" of ")[0] != "0"
    assert measured["TaskDuration"] < _READY_S
