"""Which job uses which number: a number is freed once nothing that carries it is left."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from antrea.engine.core.job import each
from antrea.engine.core.place import APPEARED, Row

if TYPE_CHECKING:
    from antrea.engine.core.job import Job
    from antrea.engine.ids import Ids

SMALL = 16
"""Up to so many numbers of a job are one object for all jobs that use the same: 10,000 members of a group do."""


@lru_cache(1024)
def _first(value: Any) -> Any:
    """Return the first of equal values."""
    return value


def use_ids(job: Job, used: frozenset[Any], ids: Ids) -> None:
    """Replace the numbers that `job` uses; those that it no longer uses are released once it is settled."""
    details = job.ensure_details()
    before = frozenset(details.ids)
    if used == before:
        return
    for ref in used - before:
        if ref in details.released_ids:
            del details.released_ids[ref]
        else:
            ids.hold(ref)
    for ref in before - used:
        details.release(ref)
    details.ids = _first(tuple(used)) if len(used) <= SMALL else used


def inherit_ids(place: Any, released: list[Any], ids: Ids) -> None:
    """Jobs that the change of `place` woke keep these numbers in use until they are settled."""
    jobs = [*each(place.readers)]
    if isinstance(place, Row) and (place.table.values is None or place.flags & APPEARED):
        jobs += [job for job in each(place.jobs) if job is not None]
    for job in jobs:
        details = job.ensure_details()
        for ref in released:
            if ref not in details.released_ids and ref not in details.ids:
                details.release(ref)
                ids.hold(ref)
