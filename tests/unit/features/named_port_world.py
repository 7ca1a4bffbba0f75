"""Pods with named ports, and what the controller says of policies that name ports."""

from __future__ import annotations

from typing import Any

from native_world import Told, row, space

from antrea.apis.status import Status
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.facts.external_ip import FencedLeadership
from antrea.features.framework.event import RecordEvent

WEB, DB = ({"matchLabels": {"app": name}} for name in ("web", "db"))
REASON = "PortNameUnknown"


def pod(name: str, app: str, *ports: str, protocol: str = "TCP", **spec: Any) -> Any:
    """A Pod with these named ports."""
    named = [{"name": port, "containerPort": 80, "protocol": protocol} for port in ports]
    return row(
        "Pod",
        name,
        "ns",
        labels={"app": app},
        spec={"nodeName": "n1", "containers": [{"ports": named}], **spec},
        status={"podIPs": [{"ip": "10.0.0.7"}]},
    )


def events(*rows: Any) -> list[RecordEvent]:
    """Events about names of ports that no Pod has."""
    facts = Facts()
    engine = Engine(facts, [unit for feature in FEATURES for unit in feature.units])
    for one in (FencedLeadership(), space("ns"), *rows):
        facts.put(one)
    acts = engine.plan().acts
    assert not engine.errors.standing, engine.errors.standing
    return [one for one in acts if isinstance(one, RecordEvent) and one.reason == REASON]


def said(*rows: Any) -> list[str]:
    """Messages of `events`."""
    return [one.message for one in events(*rows)]


def condition(*rows: Any) -> tuple[str, str]:
    """The same in the status of the one policy that has a status: whether, and the message."""
    told = Told().put(space("ns"), *rows)
    (status,) = told.of(Status)
    ((found,),) = [[one for one in status.conditions if one.type == REASON]]
    return found.status, found.message
