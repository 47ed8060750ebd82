"""The counts of a cleaning in words."""

from __future__ import annotations

import pytest

from trtnorm_cli.report.cleaning import cleaning_text


def test_each_thing_with_its_number():
    counts = {"constants folded": 1081, "dead nodes removed": 0, "unused initializers removed": 1}
    assert cleaning_text(counts) == "1,081 constants folded, 1 unused initializer removed"
    assert cleaning_text({}) == cleaning_text({"constants folded": 0}) == ""


@pytest.mark.parametrize(("many", "one"), [
    ("Constant nodes turned into initializers", "Constant node turned into initializers"),
    ("identities removed", "identity removed"), ("biases of convolutions made vectors", "bias of convolutions made vectors"),
    ("empty inputs left out", "empty input left out"), ("Scans unrolled", "Scan unrolled"),
])  # fmt: skip
def test_one_of_a_thing(many, one):
    assert cleaning_text({many: 1}) == f"1 {one}"
    assert cleaning_text({many: 2}) == f"2 {many}"
