"""Keep the garbage collector out of long runs."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

GROWN = 20_000
"""New objects that are worth freezing."""


class CollectionPause:
    """Counts what runs leave: many short ones grow the process as much as a long one does."""

    def __init__(self) -> None:
        self._grown = 0
        """Objects that runs have left since they were last frozen."""

    def paused(self, steps: Iterable[object]) -> Iterator[None]:
        """Yield as `steps` do; once they have, no automatic collection interrupts them (0.2 s at 70,000 entries).

        The objects that they leave are long-lived, so later collections need not look at them. Only growth is frozen:
        garbage that is frozen with it is never freed, and must not add up with time.
        """
        stopped = False
        try:
            for _ in steps:
                if not stopped and gc.isenabled():
                    stopped = True
                    gc.disable()
                yield
        finally:
            if stopped:
                self._grown += gc.get_count()[0]
                if self._grown > GROWN:
                    gc.freeze()
                    self._grown = 0
                gc.enable()
