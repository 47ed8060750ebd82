"""The page of what becomes of every form of the other normalizations.

python -m benchmarks.normalization_forms             # rewrites docs/normalization_forms.md (minutes)
python -m benchmarks.normalization_forms LRN size    # prints the rows whose section and name contain both
"""

from __future__ import annotations

import sys

from benchmarks.forms import DOCS, Book, write
from benchmarks.normalization_form_list import forms

BOOK = Book("Forms of other normalizations", "normalization_forms", DOCS / "normalization_forms.md", forms, shows_runtime=True)


if __name__ == "__main__":
    write(BOOK, sys.argv[1:])
