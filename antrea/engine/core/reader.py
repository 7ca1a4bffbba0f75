"""Records what the running job reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.engine.core.place import Row, discard_if_empty

if TYPE_CHECKING:
    from antrea.engine.core.job import Job
    from antrea.engine.core.place import Place, Table


class Absent(LookupError):
    """A row that a unit cannot do without does not exist (yet)."""

    def __init__(self, kind: type, key: Any) -> None:
        super().__init__(f"there is no {kind.__name__} {key!r}")


class Reader:
    """The reads of the job that runs now; of no job while `job` is None, when feeds read."""

    __slots__ = ("ids", "job", "learn", "ran_before", "reads")

    def __init__(self) -> None:
        self.job: Job | None = None
        self.ids: set[Any] | None = None
        """Numbers that it asked for."""
        self.reads: list[Any] = []
        self.ran_before: bool = False
        self.learn: Any = None
        """Called with the job and the table when a unit reads a derived kind for the first time."""

    def begin(self, job: Job) -> None:
        """Record reads of `job` from now on."""
        self.job, self.ids = job, None
        self.reads = []
        self.ran_before = bool(job.reads)

    def end(self, job: Job, failed: bool) -> None:
        """Store the reads; those of its previous run are dropped, unless it failed."""
        self.job = None
        reads = self.reads
        if not self.ran_before:
            job.reads = tuple(reads)
            return
        now = dict.fromkeys((*reads, *job.reads) if failed else reads)
        for place in job.reads:
            if place not in now:
                stop_reading(job, place)
        job.reads = tuple(now)

    def note(self, place: Place, table: Table) -> None:
        """The job reads `place`, of `table`."""
        job = self.job
        assert job is not None
        if table.derived and table not in job.bound.derived_reads:
            self.learn(job, table)
        readers = place.readers
        if readers is None:
            place.readers = job
        elif readers is job:
            if not self.ran_before:
                return  # noted by this very run
        elif type(readers) is dict:
            if job in readers:
                if not self.ran_before:
                    return
            else:
                readers[job] = None
        else:
            place.readers = {readers: None, job: None}
        self.reads.append(place)


def stop_reading(job: Job, place: Any) -> None:
    """Remove `job` from the readers of `place`."""
    readers = place.readers
    if readers is job:
        place.readers = None
    elif type(readers) is dict:
        readers.pop(job, None)
        if not readers:
            place.readers = None
    if place.readers is None and isinstance(place, Row):
        discard_if_empty(place)
