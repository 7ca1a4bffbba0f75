"""THE reconciler: facts in, differences out. Used by agent and controller alike."""

from antrea.engine.engine import Engine
from antrea.engine.entry import REPORT, Act, Entry, Plan, Sink
from antrea.engine.facts import Facts
from antrea.engine.feed import Feed
from antrea.engine.ids import Journal, Record
from antrea.engine.pace import Pace
from antrea.engine.unit import Unit
from antrea.engine.wanted import Clash

__all__ = [
    "REPORT",
    "Act",
    "Clash",
    "Engine",
    "Entry",
    "Facts",
    "Feed",
    "Journal",
    "Pace",
    "Plan",
    "Record",
    "Sink",
    "Unit",
]
