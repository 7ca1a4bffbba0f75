"""A clock that jumps moves no Egress IP, ends no entry of a name and delays no report: no feature, and nothing else that decides when to act, asks the clock on the wall."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3] / "antrea"
BY_THE_CALENDAR = (
    ROOT / "agent/api/certificate.py",
    *(ROOT / "features" / name / "controller_part.py" for name in ("support_bundle_collection", "traceflow")),
    *(ROOT / "features/packet_capture/agent_part" / f"{name}.py" for name in ("drops", "program")),
)
"""Certificates expire by the clock on the wall, collections and Traceflows end by dates of their objects, and packets have a time."""
DECIDES = (
    *sorted(ROOT.glob("outside/gossip/*.py")),
    *(one for one in sorted(ROOT.glob("features/**/*.py")) if one not in BY_THE_CALENDAR),
    *(one for one in sorted(ROOT.glob("agent/**/*.py")) if one not in BY_THE_CALENDAR),
    *sorted(ROOT.glob("engine/**/*.py")),
    *(
        ROOT / "outside" / f"{name}.py"
        for name in (
            "neighbour/probe",
            "neighbour/announcement",
            "netlink/host_feed",
            "netlink/conntrack",
            "netlink/link_watch",
            "ovsdb/bfd_feed",
            "kube/backoff",
        )
    ),
)
WALL = {"time", "time_ns", "localtime", "gmtime", "ctime", "now", "utcnow", "today", "CLOCK_REALTIME"}
"""Names in modules `time` and `datetime`; the gossip has a `now` of its own, of the time since boot."""


def asked(text: str) -> set[str]:
    """What of the clock on the wall the module asks."""
    found: set[str] = set()
    if not re.search(r"^\s*(import|from) (time|datetime)\b", text, re.MULTILINE):
        return found  # parsing all modules takes ten times as long
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and node.attr in WALL:
            whose = ast.unparse(node.value)
            if whose in ("time", "datetime", "datetime.datetime", "date", "datetime.date"):
                found.add(f"{whose}.{node.attr}")
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "datetime"):
            found |= {f"{node.module}.{name.name}" for name in node.names if name.name in WALL}
    return found


@pytest.mark.parametrize("module", DECIDES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_decides_when_to_act_knows_no_clock_that_jumps(module: Path) -> None:
    assert asked(module.read_text()) == set()


def test_exceptions_are_modules() -> None:
    assert all(path.exists() for path in BY_THE_CALENDAR)


def test_a_module_that_asks_the_clock_on_the_wall_is_found() -> None:
    text = "import time\nfrom datetime import datetime\nthen = time.time() < datetime.now()"
    assert asked(text) == {"time.time", "datetime.now"}
    assert asked("from time import time, monotonic") == {"time.time"}
    assert asked("import time\ntime.monotonic()\nclock.now()") == set()
