"""Three errors, named by what the reader has to do; everything else is a bug and travels.

AntreaError
├── Invalid(path, why)       the user must change something: an admission message, a condition, exit 2
├── Refused(entries, why)    the outside said no to these entries: the engine retries them with backoff
└── Unavailable(what)        a procedure cannot go on now: the caller tries again later (CNI code 11)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class AntreaError(Exception):
    """The root, so that a program's outermost loop can tell our sentences from bugs."""


class Invalid(AntreaError):
    """`path` names the field, flag or file; `why` says what is wrong with its value and what would be right."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


class Refused(AntreaError):
    """The outside answered no. `entries` are the refused ones (never empty), `why` its own words."""

    def __init__(self, entries: Sequence[Any], why: str) -> None:
        super().__init__(why)
        self.entries = tuple(entries)
        self.why = why


class Unavailable(AntreaError):
    """`what` is missing right now; nothing is wrong with the request."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
