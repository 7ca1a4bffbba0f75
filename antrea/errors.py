"""Three errors, named by what the reader has to do; everything else is a bug and travels.

AntreaError
├── Invalid(path, why)       the user must change something: an admission message, a condition, exit 2
├── Refused(entries, why)    the other side refused these entries: the engine retries them with backoff
└── Unavailable(what)        a procedure cannot continue: the caller tries again later (CNI code 11)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class AntreaError(Exception):
    """The root, so that a program's outermost loop can distinguish expected errors from bugs."""


class Invalid(AntreaError):
    """`path` names the field, flag or file; `why` is what is wrong with its value and what would be valid.

    An empty path: `why` names it, in a sentence of upstream's that is kept to the letter.
    """

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}" if path else why)
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


def describe_error(error: BaseException) -> str:
    """Describe an error for people: of several things at once each, which str() of their group only counts."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(map(describe_error, _each(error))))
    if isinstance(error, AntreaError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _each(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _each(error)
        else:
            yield error
