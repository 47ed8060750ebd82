"""Pages of real manifests, which ``tests/data/make_manifests.py`` has written, and Chromium to open them in."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trtnorm_cli.record import read
from trtnorm_cli.tensorrt.manifest import Manifest

FOLDER = Path(__file__).parents[2] / "data" / "manifests"
NAMES = sorted(path.name.removesuffix(".json.gz") for path in FOLDER.glob("*.json.gz"))
# Without these Chromium asks for hosts that a closed network refuses, many at a time.
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)


def values_of(name: str) -> dict[str, Any]:
    """The manifest called ``name`` as JSON values."""
    found: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return found


@pytest.fixture(scope="session")
def page() -> Callable[[str], str]:
    """The page of a manifest by its name, written once."""
    from trtnorm_cli.report.page.page import page_of

    written: dict[str, str] = {}

    def of(name: str) -> str:
        if name not in written:
            written[name] = page_of(read(Manifest, values_of(name)))
        return written[name]

    return of


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in QUIET.split():
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    opened.set_script_timeout(240)
    yield opened
    opened.quit()
