"""What the agents of Nodes report of TrafficControls that they cannot realize."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from antrea.antctl.failure import Failure
from antrea.antctl.remote import AGENT_INFOS
from antrea.antctl.request import ask
from antrea.apis.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.antctl.request import Server
    from antrea.explain.answer import Answer
    from antrea.explain.steering import SteeredPacket

CONDITIONS = ("TrafficControlPortsMissing", "TrafficControlBypassed")
MORE = re.compile(r" and \d+ more\b")
"""Of a condition that does not name all."""


def realized(kubernetes: Server, found: Answer) -> Answer:
    """The answer with what the Nodes report of the TrafficControls that it names."""
    told = tuple(_told(kubernetes, one) for one in found.traffic_controls)
    return msgspec.structs.replace(found, traffic_controls=told)


def _told(kubernetes: Server, one: SteeredPacket) -> SteeredPacket:
    try:
        info = ask(kubernetes, f"{AGENT_INFOS}/{one.node}", {})
    except Failure as error:
        missing = f"Node {one.node} could not be asked: {error.message}"
    else:
        conditions = info.get("agentConditions") or ()
        missing = "; ".join(message for row in conditions for message in _messages(row, one.traffic_control))
    return msgspec.structs.replace(one, missing=one_line(missing))


def _messages(condition: dict[str, str], name: str) -> Iterator[str]:
    if condition.get("type") not in CONDITIONS or condition.get("status") != "True":
        return
    message = condition.get("message", "")
    if re.search(rf" {re.escape(name)}(?=[:;,]| and | \(|$)", message) or MORE.search(message):
        yield message
