"""Conditions in which agents report TrafficControls that they cannot realize."""

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
"""End of a condition's message that does not list all objects."""


def realized(kubernetes: Server, answer: Answer) -> Answer:
    """The answer with what the Nodes report of the TrafficControls that it names."""
    traffic_controls = tuple(
        _with_missing_ports(kubernetes, traffic_control) for traffic_control in answer.traffic_controls
    )
    return msgspec.structs.replace(answer, traffic_controls=traffic_controls)


def _with_missing_ports(kubernetes: Server, steered: SteeredPacket) -> SteeredPacket:
    try:
        info = ask(kubernetes, f"{AGENT_INFOS}/{steered.node}", {})
    except Failure as error:
        missing = f"Node {steered.node} could not be asked: {error.message}"
    else:
        conditions = info.get("agentConditions") or ()
        missing = "; ".join(
            message for row in conditions for message in _messages(row, steered.traffic_control)
        )
    return msgspec.structs.replace(steered, missing=one_line(missing))


def _messages(condition: dict[str, str], name: str) -> Iterator[str]:
    if condition.get("type") not in CONDITIONS or condition.get("status") != "True":
        return
    message = condition.get("message", "")
    if re.search(rf" {re.escape(name)}(?=[:;,]| and | \(|$)", message) or MORE.search(message):
        yield message
