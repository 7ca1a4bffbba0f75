"""Where owners of one key want values that cannot unite: the error, and the jobs that wait for the end of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antrea.engine.core.job import Job


class Clash(Exception):
    """Several jobs want different values under one key, and these cannot unite."""

    def __init__(self, ref: Any, values: int) -> None:
        kind, key = ref
        super().__init__(f"{values} values for {kind.__name__} {key!r}")
        self.ref = ref
        self.values = values
        """How many different ones."""


class ClashWaiters:
    """Jobs whose claim to a key does not count; they are looked at again when another claim holds the key."""

    __slots__ = ("held", "jobs")

    def __init__(self) -> None:
        self.held: Any = None
        """The claim that held the key when `jobs` were looked at."""
        self.jobs: dict[Job, None] = {}
