"""Runs in the virtual machine: the agent, with gossip that waits longer for others, as they are on an emulated processor, too.

With the times of a real machine members would lose their majority, and with it Egress IPs, whenever a thread waits for
a turn; docs/membership.md has these times, and tests/host and tests/lab keep to them.
"""

from __future__ import annotations

import sys
from functools import partial

from antrea.agent import assembly
from antrea.agent.main import main
from antrea.outside.gossip import feed, machine
from antrea.outside.gossip.suspicion import Timing
from lab.process import TIME_FACTOR

SLOWER = 30 * TIME_FACTOR
"""Times: what takes 20 ms outside takes half a second here, more beside other programs."""
LATE = (
    "period",
    "again",
    "suspicion_least",
    "suspicion_most",
    "suspicion_sole",
    "stall",
    "alone",
    "grace",
    "answer",
    "restart",
    "lifeless",
    "doubt",
    "blind",
)
"""What passes while somebody is merely slow; what has to last stays as it is."""

if __name__ == "__main__":
    usual = Timing()
    patient = partial(Timing, **{name: SLOWER * getattr(usual, name) for name in LATE})
    setattr(machine, "Timing", patient)  # noqa: B010 (a class, which mypy does not let us assign to)
    feed.SYNC_SECONDS *= SLOWER
    assembly.FIRST_LIST_SECONDS *= SLOWER
    sys.exit(main())
