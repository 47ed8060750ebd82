"""The page of what becomes of every form of BatchNormalization.

python -m benchmarks.batchnorm_forms            # rewrites docs/batchnorm_forms.md (minutes)
python -m benchmarks.batchnorm_forms tiled      # prints the rows whose name contains "tiled"
"""

from __future__ import annotations

import sys

from benchmarks.batchnorm_form_list import forms
from benchmarks.forms import DOCS, Book, write

BOOK = Book("Forms of BatchNormalization", "batchnorm_forms", DOCS / "batchnorm_forms.md", forms)


if __name__ == "__main__":
    write(BOOK, sys.argv[1:])
