"""A job is one unit over one row: what it read, what it wants, and what of that is applied."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from antrea.engine.core.workload import Workload

if TYPE_CHECKING:
    from antrea.engine.core.place import Cell, Place, Row, Table

DUE, OPEN, GONE, IN_BULK, IN_URGENT = 1, 2, 4, 8, 16
"""Flags of a job. DUE: it has to run; OPEN: the pass in which it ran is not over; GONE: its row does not exist any more;
IN_BULK, IN_URGENT: it lies in that queue."""


class BoundUnit:
    """A unit, bound to the table that it is over."""

    __slots__ = (
        "by",
        "derived_reads",
        "entries",
        "level",
        "position",
        "routes",
        "table",
        "unit",
        "workload",
    )

    def __init__(self, unit: Any, table: Table) -> None:
        self.unit: Any = unit
        self.entries: Any = unit.entries
        self.by: bool = bool(unit.by)
        self.table: Table = table
        self.level: int = 0
        """Units of a lower level run first."""
        self.position: int = len(table.units)
        self.derived_reads: set[Any] = set()
        """Tables of derived kinds that it is known to read."""
        self.routes: dict[type, Any] = {}
        """The table of each class that it yields."""
        self.workload: Workload | None = Workload() if unit.measured_as else None


NOTHING: dict[Any, Any] = {}
"""Stands for empty state of jobs, and is never written: a dict for each would be a third of what a job with numbers takes."""


class JobDetails:
    """State that few jobs have."""

    __slots__ = ("acts", "due", "ids", "refused", "released_ids", "tries", "withdrawn")

    def __init__(self) -> None:
        self.acts: dict[Any, Any] = NOTHING
        """Acts by class, key and cause."""
        self.ids: Any = ()
        """A tuple of few numbers, or a frozenset of many."""
        self.released_ids: dict[Any, None] = NOTHING
        """Numbers that it no longer uses, but that entries of it, or of what it derived, may still carry."""
        self.withdrawn: dict[Cell, None] = NOTHING
        """Cells that it no longer wants and whose removal it waits for."""
        self.refused: Any = None
        """Why it is held back until `due`: meanwhile it contributes its last applied version."""
        self.due: float = 0.0
        self.tries: int = 0

    def release(self, ref: Any) -> None:
        """Keep a number that is no longer used until the job is settled."""
        if self.released_ids is NOTHING:
            self.released_ids = {}
        self.released_ids[ref] = None

    def withdraw(self, cell: Cell) -> None:
        """Wait for the removal of what the cell stands for."""
        if self.withdrawn is NOTHING:
            self.withdrawn = {}
        self.withdrawn[cell] = None


class Job:
    """State machine: due, open, waiting, settled; beside it failed (its unit raised) and held (a sink refused an entry).

    Identity is the object, so that hashing and comparing cost nothing.
    """

    __slots__ = (
        "bound",
        "contributed",
        "details",
        "flags",
        "last_applied",
        "reads",
        "row",
        "waiting",
        "wanted",
    )

    def __init__(self, bound: BoundUnit, row: Row) -> None:
        self.flags: int = 0
        self.bound: BoundUnit = bound
        self.row: Row = row
        self.reads: tuple[Place, ...] = ()
        self.wanted: tuple[Any, ...] = ()
        """Output of its last good run: cell, value, cell, value ..."""
        self.contributed: tuple[Any, ...] = ()
        """Present contribution: `wanted`, or `last_applied` while it is held back."""
        self.last_applied: tuple[Any, ...] = ()
        """Its last version that was applied as a whole."""
        self.waiting: int = 0
        """How many cells, where its contribution changed, are not applied yet."""
        self.details: JobDetails | None = None

    @property
    def key(self) -> Any:
        return self.row.key

    @property
    def unit(self) -> Any:
        return self.bound.unit

    @property
    def name(self) -> tuple[str, Any]:
        return (self.bound.unit.name, self.row.key)

    @property
    def held_name(self) -> tuple[str, str, Any]:
        """The reference under which errors list it as held back."""
        return ("held", self.bound.unit.name, self.row.key)

    @property
    def held(self) -> Any:
        """The refusal for which it is held back, or None."""
        return None if self.details is None else self.details.refused

    @property
    def is_settled(self) -> bool:
        """Whether everything that it wants is applied and it has nothing left to do."""
        return not (self.flags & (DUE | OPEN) or self.waiting or self.held)

    def ensure_details(self) -> JobDetails:
        """Return `details`, made if need be."""
        details = self.details
        if details is None:
            details = self.details = JobDetails()
        return details


def add_waiter(cell: Cell, job: Job) -> bool:
    """Let `job` wait for `cell`; return whether it did not yet."""
    readers = cell.readers
    if readers is None:
        cell.readers = job
    elif readers is job:
        return False
    elif type(readers) is dict:
        if job in readers:
            return False
        readers[job] = None
    else:
        cell.readers = {readers: None, job: None}
    return True


def each(jobs: Any) -> tuple[Job, ...]:
    """Return all jobs of an attribute that holds None, one job, or a dict or list of jobs."""
    if jobs is None:
        return ()
    return tuple(jobs) if type(jobs) in (dict, list) else (jobs,)
