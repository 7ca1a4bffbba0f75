"""Acts are done when their cause appears: counts which jobs state each cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antrea.engine.core.job import Job


class Causes:
    """It does not matter which job stated a cause before and which states it now."""

    __slots__ = ("_before", "_counts", "appeared")

    def __init__(self) -> None:
        self.appeared: list[Any] = []
        """Acts whose cause appeared in the passes closed so far; the caller takes them."""
        self._counts: dict[Any, int] = {}
        """How many jobs state each cause."""
        self._before: dict[Any, tuple[Any, int]] = {}
        """The same, before this pass, for the causes that it touched, with the act."""

    def state(self, job: Job, acts: dict[Any, Any]) -> None:
        """Replace the causes that `job` states."""
        details = job.ensure_details()
        for cause in acts.keys() ^ details.acts.keys():
            act = acts.get(cause) or details.acts[cause]
            count = self._counts.get(cause, 0)
            self._before.setdefault(cause, (act, count))
            self._counts[cause] = count + (1 if cause in acts else -1)
        details.acts = acts

    def close(self) -> None:
        """The pass is over: keep the acts whose cause no job stated before it."""
        for cause, (act, before) in self._before.items():
            if not self._counts[cause]:
                del self._counts[cause]
            elif not before:
                self.appeared.append(act)
        self._before.clear()

    def take_acts(self) -> list[Any]:
        """Return the acts that appeared, once."""
        acts, self.appeared = self.appeared, []
        return acts

    @property
    def empty(self) -> bool:
        """Whether no table holds anything."""
        return not (self.appeared or self._counts)
