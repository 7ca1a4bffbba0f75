"""The checks behind /livez, /readyz and /agentinfo: an empty text is success, any other is the error.

parity: pkg/agent/apiserver/apiserver.go (livez has "ovs"); this livez also has the CNI socket,
and this readyz what a start waits for, OVSDB, a switch that does not respond, and feeds that have not synced for too long.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from antrea.outside.http.liveness_probe import LivenessProbe
from antrea.outside.kube.resource_feed import missing_rights
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.agent.switch.recovery import SwitchRecovery
    from antrea.engine import Engine
    from antrea.outside.http.handlers import Check
    from antrea.outside.ovsdb.client import Ovsdb

log = klog.logger(__name__)

SOURCE_NAMES = {
    "AgentNode": "nodes",
    "EarlierConnection": "connections that kube-proxy left",
    "EgressPod": "egressgroups of antrea-controller",
    "GossipMember": "members of the gossip between Nodes",
    "ImportedRoute": "routes of routers, from FRR",
    "ListeningPorts": "ports in use on this Node",
    "LoadedTenant": "rules of the L7 engine",
    "LocalAddress": "addresses of this Node",
    "LocalLink": "interfaces of this Node",
    "LocalPod": "Pods of this Node",
    "OvsPort": "ports of the switch",
    "PeerPassword": "Secret antrea-bgp-passwords",
    "PodInterface": "interfaces of Pods",
    "PortsDecided": "ports of NodePortLocal",
    "SentAddressGroup": "addressgroups of antrea-controller",
    "SentAddressMember": "addressgroups of antrea-controller",
    "SentAppliedGroup": "appliedtogroups of antrea-controller",
    "SentAppliedMember": "appliedtogroups of antrea-controller",
    "SentPolicy": "networkpolicies of antrea-controller",
    "ThisNode": "this Node",
}
"""Sources of facts by kind, in terms for users, where the feed does not name its source; feeds of API resources do."""
FEED_SECONDS = 5.0
"""Seconds between checks of the feeds; `Pace.patience` of the engine limits how long a feed may be silent."""
PROBE_SECONDS = 1.0
"""Seconds between probes of Open vSwitch: with their timeout of 5 s, a process that hangs is reported within 10 s."""


class Readiness(asyncio.Event):
    """Event that is set once the Node's network is ready."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = "start of antrea-agent"
        self.is_outside = False
        """Whether the missing thing is an outside dependency that is away, with no fault in the request to it."""

    @property
    def waiting(self) -> str:
        """Thing that the agent waits for; empty once the event is set."""
        return "" if self.is_set() else self._waiting

    def wait_for(self, what: str, *, level: int = 0, outside: bool = False) -> None:
        """Set what is missing now, and whether it is `outside`; logged once per change, at verbosity `level`."""
        if what != self._waiting:
            log.v(level).info("Waiting", **{"for": what})
        self._waiting, self.is_outside = what, outside


class Health:
    """Health checks of the agent; before `follow` only `ready` is meaningful, since nothing is connected yet."""

    def __init__(self, ready: Readiness, controller: Check, cni: Check) -> None:
        """`controller` checks the connection to antrea-controller, `cni` the CNI socket."""
        self._start = ready
        self._db: Ovsdb | None = None
        self._switch: SwitchRecovery | None = None
        self._probes: dict[str, LivenessProbe] = {}
        self._late: list[str] = []
        self._refused: dict[str, str] = {}
        self.live: Mapping[str, Check] = {"ovs": self._connection, "cni": cni}
        self.ready: Mapping[str, Check] = {
            "network": lambda: self._start.waiting,
            "flows": self._flows,
            "switch": lambda: self._silence("switch"),
            "ovsdb": self.database,
            "feeds": self._feeds,
        }
        self.conditions: Mapping[str, Check] = {
            "OVSDBConnectionUp": self.database,
            "OpenflowConnectionUp": self.switch,
            "ControllerConnectionUp": controller,
        }

    def switch(self) -> str:
        """Check that ovs-vswitchd runs, has the bridge and responds."""
        return self._connection() or self._silence("switch")

    def database(self) -> str:
        """Check that OVSDB accepts transactions; without it no Pod can come or go, and userspace OVS forwards nothing."""
        up = self._db is None or self._db.connected
        return self._silence("ovsdb") if up else "disconnected from OVSDB"

    def follow(self, db: Ovsdb, switch: SwitchRecovery, *, period: float = PROBE_SECONDS) -> None:
        """Check these connections from now on, with `period` seconds between probes of them."""
        self._db, self._switch = db, switch
        self._probes = {
            "ovsdb": LivenessProbe("ovsdb-server", db.probe, period=period),
            "switch": LivenessProbe("ovs-vswitchd", switch.probe, period=period),
        }

    async def run(self, engine: Engine) -> None:
        """Probe Open vSwitch and check the feeds until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for name, probe in self._probes.items():
                tasks.create_task(probe.run(), name=f"probe of {name}")
            await self._follow_feeds(engine)

    async def _follow_feeds(self, engine: Engine) -> None:
        """Check the feeds until cancelled; each change is logged once."""
        feeds = engine.facts.feeds
        while True:
            sources = {kind.__name__: source for kind, source in feeds.sources.items()}
            late = sorted({sources.get(name) or source_name(name) for name in engine.unsynced()})
            if late and late != self._late:
                log.warning("Feeds have not synced", feeds=late)
            elif self._late and not late:
                log.info("All feeds have synced")
            refused = feeds.refused()
            for source in sorted(refused.keys() - self._refused.keys()):
                log.error("The right to read a resource is missing", resource=source, err=refused[source])
            self._late, self._refused = late, refused
            await asyncio.sleep(FEED_SECONDS)

    def _connection(self) -> str:
        """ovs-vswitchd runs and has the bridge; one that hangs keeps it, and is restarted by the probe of its own container."""
        up = self._switch is None or self._switch.connected
        return "" if up else "disconnected from ovs-vswitchd"

    def _silence(self, name: str) -> str:
        """Return why a program of Open vSwitch that is connected does not respond, empty if it responds."""
        return self._probes[name].trouble if name in self._probes else ""

    def _flows(self) -> str:
        replaying = self._start.is_set() and self._switch is not None and not self._switch.works.is_set()
        return "flows are being replayed" if replaying else ""

    def _feeds(self) -> str:
        """Report feeds that are late; missing rights are reported immediately, since waiting does not grant them."""
        lines = []
        if self._refused:
            lines.append(missing_rights(self._refused))
        if late := [source for source in self._late if source not in self._refused]:
            lines.append(f"no recent data from kube-apiserver or OVSDB: {', '.join(late)}")
        return "; ".join(lines)


def source_name(kind: str) -> str:
    """Return the source of facts of this kind; for an unknown kind, its name as words."""
    return SOURCE_NAMES.get(kind) or re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind).lower()
