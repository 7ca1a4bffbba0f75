"""The agent about itself: the answer of /agentinfo, and its AntreaAgentInfo, which it renews once a minute.

The controller creates and deletes the object (antrea.controller.managed.agent_infos). Unlike upstream's, AgentHealthy is False
while a check fails, with the reason.
parity: pkg/monitor/agent.go, pkg/agent/querier/querier.go
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
from typing import TYPE_CHECKING, Any

import msgspec

from antrea import VERSION
from antrea.apis.annotation import GATES_IN_EFFECT
from antrea.apis.core import ObjectMeta
from antrea.apis.crd.external import MACHINE_KIND
from antrea.apis.crd.info import (
    AgentCondition,
    AntreaAgentInfo,
    NetworkInfo,
    NetworkPolicyControllerInfo,
    OvsInfo,
)
from antrea.apis.crd.part import ObjectReference
from antrea.apis.shown import shortened
from antrea.errors import Refused, Unavailable, describe_error
from antrea.facts.node import ThisNode, Transport
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_part import NotFound
from antrea.features.framework.plug import merged
from antrea.outside.kube.backoff import Backoff
from antrea.outside.kube.clock import stamp
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from antrea.agent.api.view import AgentView
    from antrea.outside.http.handlers import Check
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

HEARTBEAT_SECONDS = 60
LOOK_SECONDS = 2
"""Seconds between checks of the conditions, whose changes do not wait for the next heartbeat."""
PATH = "/apis/crd.antrea.io/v1beta1/antreaagentinfos"
MAX_MESSAGE = 300
"""Maximum number of characters in the message of a failed check."""
MOVING = ("ovsInfo", "networkPolicyControllerInfo", "localPodNum", "agentConditions", "apiCABundle")
"""Fields that a partial update writes."""
_TABLE = re.compile(r"tables? (?P<first>\d+)(?:\.\.\.(?P<last>\d+))?\b.*:(?P<same> ditto)?$")
_ACTIVE = re.compile(r"active=(\d+)")


class PublishedInfo(msgspec.Struct, frozen=True):
    """Identity of the object in the API."""

    metadata: ObjectMeta = ObjectMeta()


async def agent_info(view: AgentView) -> AntreaAgentInfo:
    """Return the current state of the agent, without its certificate. Raises NotFound before the Node is known."""
    node, transport = view.facts.get(ThisNode), view.facts.get(Transport)
    if node is None:
        raise NotFound("the agent does not know its Node yet")
    network = NetworkInfo(pod_mtu=node.mtu)
    if transport is not None:
        network = NetworkInfo(transport.interface, transport.mtu, node.mtu, transport.addresses[:2])
    version, flows = "", {}
    # what cannot be told is left out; conditions say why
    with contextlib.suppress(Unavailable):
        version = view.ovs_version()
    with contextlib.suppress(Unavailable):
        flows = await flow_counts(view) if responds(view) else {}
    info = AntreaAgentInfo(
        version=f"v{VERSION}",
        pod_ref=_pod_reference(),
        node_ref=node_reference(node),
        node_subnets=node.pod_cidrs,
        ovs_info=OvsInfo(version, view.config.ovs_bridge, flows),
        local_pod_num=sum(not row.uplink for row in view.facts.all(PodInterface)),
        agent_conditions=conditions(view),
        api_port=view.config.api_port,
        network_info=network,
    )
    more = merged("field of AntreaAgentInfo", (part.agent_info() for part in view.parts))
    return msgspec.structs.replace(info, **more)


def _pod_reference() -> ObjectReference:
    namespace, name = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
    return ObjectReference(kind="Pod", namespace=namespace, name=name)


def node_reference(node: ThisNode) -> ObjectReference:
    """The Node, or the ExternalNode of a machine outside the cluster."""
    if not node.is_machine:
        return ObjectReference(kind="Node", name=node.name)
    namespace, _, name = node.name.rpartition("/")
    return ObjectReference(kind=MACHINE_KIND, namespace=namespace, name=name)


def responds(view: AgentView) -> bool:
    """Return whether the switch can be asked: one that hangs, or has no database, would delay the report of its state."""
    checks = (view.conditions.get(kind) for kind in ("OVSDBConnectionUp", "OpenflowConnectionUp"))
    return not any(check() for check in checks if check is not None)


async def flow_counts(view: AgentView) -> dict[str, int]:
    """Count the flows of each table, by table name, as the switch reports them. Raises Unavailable."""
    names = {number: name for name, number in view.tables.items()}
    counts = dict.fromkeys(view.tables, 0)
    numbers, active = range(0), 0
    async for line in view.ofctl.lines("dump-tables"):
        if table := _TABLE.match(line):
            numbers = range(int(table["first"]), int(table["last"] or table["first"]) + 1)
        elif count := _ACTIVE.match(line):
            active = int(count[1])
        # equal tables are printed once, then as "ditto"
        if table is None or table["same"]:
            counts |= {names[number]: active for number in numbers if number in names}
    return counts


def conditions(view: AgentView) -> tuple[AgentCondition, ...]:
    """Evaluate the health conditions; those of `troubles` and ConfigRejected are present only when something is wrong."""
    failures = [why for checks in (view.live, view.ready) for test in checks.values() if (why := test())]
    now = stamp()
    messages = {
        "AgentHealthy": "; ".join(failures),
        **{name: test() for name, test in view.conditions.items()},
    }
    rows: list[Any] = [
        {"type": name, "status": "False" if why else "True", "message": why} for name, why in messages.items()
    ]
    rows += [
        {"type": name, "status": "True", "message": why}
        for name, test in view.troubles.items()
        if (why := _trouble(test))
    ]
    if view.now.rejected:
        rows.append({"type": "ConfigRejected", "status": "True", "message": view.now.rejected})
    return tuple(
        msgspec.convert(
            {**row, "message": shortened(row["message"]), "lastHeartbeatTime": now}, AgentCondition
        )
        for row in rows
    )


def _trouble(test: Check) -> str:
    """Return the result of a part's check; a check that raises an error is a trouble, too."""
    try:
        return test()
    except Exception as error:  # noqa: BLE001 (one condition that cannot be checked leaves the others)
        return f"the check failed: {describe_error(error)}"[:MAX_MESSAGE]


def gates_in_effect(view: AgentView) -> str | None:
    """Return the gates that are on while an older configuration than the newest is in effect; else None."""
    return ",".join(sorted(view.now.gates.names)) if view.now.rejected else None


def condition_states(view: AgentView) -> list[tuple[str, str, str]]:
    """Summarize the conditions whose changes are published without waiting for the heartbeat."""
    return [(condition.type, condition.status, condition.message) for condition in conditions(view)]


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Compute the merge patch (RFC 7396) that turns `before` into `now`."""
    patch: dict[str, Any] = {key: None for key in before if key not in now}
    for key, value in now.items():
        held = before.get(key)
        if isinstance(held, dict) and isinstance(value, dict):
            patch[key] = changes(held, value)
        elif value != held:
            patch[key] = value
    return patch


class Report:
    """Publisher of this Node's AntreaAgentInfo."""

    def __init__(self, kube: Kube, view: AgentView, trusted: Callable[[], str]) -> None:
        """`trusted` returns the PEM by which clients verify the agent's API."""
        self._kube = kube
        self._view = view
        self._trusted = trusted
        self.published = ""
        """CA bundle that the object has."""
        self._uid = ""
        """UID of the object that holds everything known; empty if everything has to be written."""
        self._said = ""

    async def run(self) -> None:
        """Publish until cancelled: once a minute, and soon after a condition changed."""
        pause = Backoff(asyncio.sleep, random.uniform)
        while True:
            published = condition_states(self._view)
            try:
                await self.write()
            except (Refused, Unavailable) as error:
                if str(error) != self._said:
                    log.warning("Failed to update AntreaAgentInfo", err=str(error))
                self._said = str(error)
                await pause.wait()
                continue
            self._said = ""
            pause.reset()
            for _ in range(HEARTBEAT_SECONDS // LOOK_SECONDS):
                await asyncio.sleep(LOOK_SECONDS)
                if condition_states(self._view) != published:
                    break

    async def write(self) -> None:
        """Write the whole object at first and after an error, later only what changes. Raises Refused, Unavailable."""
        trusted = self._trusted()
        info = msgspec.structs.replace(await agent_info(self._view), api_ca_bundle=trusted.encode())
        now: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(info))
        path = f"{PATH}/{info.node_ref.name}"
        uid, self._uid = self._uid, ""
        if uid:
            moving = {key: now.get(key) for key in MOVING}
            moving["ovsInfo"] = {"flowTable": None, **now["ovsInfo"]}
            counted = "networkPolicyControllerInfo"
            moving[counted] = {**_NO_COUNTS, **now[counted]}
        else:
            stored = await self._kube.get(path, dict[str, Any])
            if stored is None:
                raise Unavailable(
                    f"AntreaAgentInfo {info.node_ref.name} does not exist yet; antrea-controller creates it"
                )
            uid = msgspec.convert(stored, PublishedInfo).metadata.uid
            moving = changes({key: stored[key] for key in stored if key in _FIELDS}, now)
        # another object of that name, made since, does not match: everything is written anew
        annotations = {GATES_IN_EFFECT: gates_in_effect(self._view)}
        meta = {"uid": uid, "annotations": annotations}
        await self._kube.patch(path, {"metadata": meta, **moving}, manager="antrea-agent")
        self._uid, self.published = uid, trusted


_NO_COUNTS = {field.encode_name: None for field in msgspec.structs.fields(NetworkPolicyControllerInfo)}
_FIELDS = frozenset(
    field.encode_name for field in msgspec.structs.fields(AntreaAgentInfo) if field.name != "metadata"
)
