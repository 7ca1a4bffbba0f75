"""Jobs that have to run, and what wakes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.engine.core.job import DUE, Job
from antrea.engine.core.place import APPEARED, Row

if TYPE_CHECKING:
    from antrea.engine.core.job import BoundUnit


class JobQueue:
    """Jobs to run, by unit."""

    __slots__ = ("bit", "jobs")

    def __init__(self, bit: int) -> None:
        self.bit: int = bit
        """The flag of jobs that lie in this queue."""
        self.jobs: dict[BoundUnit, list[Job]] = {}

    def add(self, job: Job) -> None:
        """Let `job` run; once, however often it is added."""
        flags = job.flags | DUE
        if flags & self.bit:
            job.flags = flags
            return
        job.flags = flags | self.bit
        jobs = self.jobs.get(job.bound)
        if jobs is None:
            self.jobs[job.bound] = [job]
        else:
            jobs.append(job)


def wake(place: Any, queue: JobQueue) -> None:
    """Queue the jobs that read `place` and the jobs over it."""
    readers = place.readers
    if readers is not None:
        if type(readers) is dict:
            for job in readers:
                queue.add(job)
        else:
            queue.add(readers)
    if isinstance(place, Row) and place.table.units:
        _wake_over(place, queue)


def _wake_over(row: Row, queue: JobQueue) -> None:
    if row.table.values is not None and not row.flags & APPEARED:
        return  # a unit over the values of an index runs when a value comes or goes
    units, jobs = row.table.units, row.jobs
    if len(units) == 1:
        if jobs is None:
            jobs = row.jobs = Job(units[0], row)
        queue.add(jobs)
        return
    if jobs is None:
        jobs = row.jobs = [None] * len(units)
    for n, bound in enumerate(units):
        if jobs[n] is None:
            jobs[n] = Job(bound, row)
        queue.add(jobs[n])
