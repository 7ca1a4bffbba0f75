"""Paths of the API: what one part of a path is to everybody who reads it, and what is none."""

from __future__ import annotations

import re
from urllib.parse import unquote

_PART = re.compile(r"[^/\\%\x00-\x1f\x7f\ufffd]+")
"""U+FFFD stands for what is not UTF-8."""


def is_part(part: str) -> bool:
    """Whether a decoded part of a path is one to every reader: servers and clients tidy dots and slashes up differently."""
    return part not in ("", ".", "..") and _PART.fullmatch(part) is not None


def is_path(path: str) -> bool:
    """Whether a path from the root, without a query, has such parts alone, escaped or not."""
    first, *parts = path.split("/")
    return not first and "?" not in path and "#" not in path and all(is_part(unquote(part)) for part in parts)
