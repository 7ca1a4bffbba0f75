"""What went wrong: counted for ever by source, listed by subject while it stands."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

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
        text = f"{type(why).__name__}: {why}" if isinstance(why, BaseException) else str(why)
        self.counts[source] += 1
        if self.standing.get(subject) != text:
            error = why if isinstance(why, BaseException) else None
            log.warning("Reconciling failed", extra={"source": source, "subject": subject}, exc_info=error)
        self.standing[subject] = text

    def once(self, source: str, why: BaseException) -> None:
        """Count what is not going to be tried again, such as an act."""
        self.counts[source] += 1
        log.warning("Act failed", extra={"source": source}, exc_info=why)

    def clear(self, subject: Hashable) -> None:
        """It works again, or is gone."""
        self.standing.pop(subject, None)
