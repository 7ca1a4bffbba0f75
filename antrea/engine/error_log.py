"""Errors: counted for ever by source, listed by subject while they last."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from antrea.errors import AntreaError

if TYPE_CHECKING:
    from collections.abc import Hashable

log = logging.getLogger(__name__)


class Errors:
    """`counts` by source ("unit pod_flow", "clash Flow", "sink FlowSink", "act Event"); `standing` what is wrong now."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.standing: dict[Hashable, str] = {}

    def note(self, source: str, subject: Hashable, why: object) -> None:
        """Count it; logged when it is new or reads differently from last time."""
        text = _text(why)
        self.counts[source] += 1
        if self.standing.get(subject) != text:
            _warn("Reconciling failed", {"source": source, "subject": subject, "err": text}, why)
        self.standing[subject] = text

    def once(self, source: str, why: BaseException) -> None:
        """Count what is not going to be tried again, such as an act."""
        self.counts[source] += 1
        _warn("Act failed", {"source": source, "err": _text(why)}, why)

    def clear(self, subject: Hashable) -> None:
        """It works again, or is gone."""
        self.standing.pop(subject, None)


def _text(why: object) -> str:
    return f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else str(why)


def _warn(sentence: str, fields: dict[str, object], why: object) -> None:
    """One line; of what is a bug with its traceback."""
    bug = why if isinstance(why, BaseException) and not isinstance(why, AntreaError) else None
    log.warning(sentence, extra={"fields": fields}, exc_info=bug)
