"""The reconciler of agent and controller: facts in, differences out."""

from antrea.engine.core.clash import Clash
from antrea.engine.core.facts import Facts
from antrea.engine.core.reader import Absent
from antrea.engine.engine import Engine
from antrea.engine.entry import REPORT, Act, Entry, Mergeable, Plan, Sink
from antrea.engine.feed import Feed
from antrea.engine.ids import Journal, Record
from antrea.engine.pace import Pace
from antrea.engine.unit import Unit

__all__ = [
    "REPORT",
    "Absent",
    "Act",
    "Clash",
    "Engine",
    "Entry",
    "Facts",
    "Feed",
    "Journal",
    "Mergeable",
    "Pace",
    "Plan",
    "Record",
    "Sink",
    "Unit",
]
