"""Names of strangers made fit for XML, which has no way to write some characters."""

from __future__ import annotations

import re

from trtnorm_cli.plain_text import shown

_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def plain(text: str) -> str:
    """The text with what a terminal would obey written out, and what XML cannot hold replaced."""
    return _NOT_IN_XML.sub("\ufffd", shown(text))


def line(text: str) -> str:
    """The text on one line, as an attribute has it."""
    return plain(" ".join(text.split()))
