"""Delayed steps when Egress IPs move to another Node: releasing them later, and handing over all of them before the agent ends.

An agent that is terminated cannot see whether the next one starts at once. It leaves the membership if its Node will run
without it: the Node is cordoned or deleted, or the whole Pod ends and takes the userspace switch along. With the kernel's
switch connections continue without a Pod, so it announces a short restart instead. A restarted container and a changed
configuration keep their addresses, and established connections keep their Node.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from antrea.apis.core import ObjectMeta
from antrea.errors import Refused, Unavailable
from antrea.facts.egress import AnnouncedAddress, CopiedAddress, Egress, EgressOwner, ReleasedAddress
from antrea.facts.member import AgentLeaving, AgentNode, GossipMember, PoolSelector, Quorum, SilenceReport
from antrea.facts.node import LocalAddress
from antrea.features.external_ip_pool.link import DEVICE, PREFIX
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from antrea.config.agent import AgentConfig
    from antrea.engine import Facts
    from antrea.facts.fact import Fact
    from antrea.features.egress.agent.handover import ConfirmAnnounced, ReleaseAddress
    from antrea.features.egress.agent.takeover_event import RecordTakeover
    from antrea.outside.gossip.feed import GossipFeed
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

ANNOUNCE_SECONDS: Final = 0.11
"""Seconds until an address has been announced three times (antrea.outside.neighbour.announcement.PAUSES)."""
COPY_SECONDS: Final = 2.0
"""Maximum seconds to wait for copies of connections before Pods' packets are sent here."""
RELAY_SECONDS: Final = 1.5
"""Seconds that responses may be in transit, including agents that receive the move later than others."""
LINGER_SECONDS: Final = 2.0
"""Seconds that an address of another Node is still translated: longer would relay responses of connections that only this Node
tracks.
"""
FAREWELL_SECONDS: Final = 4.0
"""Maximum seconds for takeovers; shorter than antrea.outside.gossip.feed.LEFT_SECONDS."""
ASK_SECONDS: Final = 1.0
"""Timeout for reading this Pod from kube-apiserver."""
SPREAD_SECONDS: Final = 0.3
"""Seconds until other members have received the announced restart, which is sent immediately and every 0.1 s."""
ELECT_SECONDS: Final = 0.3
"""Seconds until this agent has computed the next owners."""
LOOK_SECONDS: Final = 0.05
AWAY_SECONDS: Final = 0.4
"""Maximum seconds between two reads of the status; with RELAY_SECONDS less than LINGER_SECONDS."""
ENDING: Final = "antrea-agent.ending"
"""File beside OVSDB's socket: while it exists the switch continues to run, for 6 s at most (build/image/start_ovs)."""


TIMED_KINDS: Final = (GossipMember, AgentNode, PoolSelector, Egress, Quorum, SilenceReport)
"""Kinds whose changes move addresses: their times are kept."""


def takeover_message(act: RecordTakeover, timed: Mapping[type[Fact], Mapping[str, float]]) -> str:
    """Return who took over from whom, why, and how many ms after this agent knew that."""
    why = act.why
    rows = {PoolSelector: (act.pool,), Egress: (act.egress,)}
    news = (
        [(why.kind, why.row)]
        if why.kind
        else [(k, row) for k in TIMED_KINDS for row in rows.get(k, timed.get(k, ()))]
    )
    known = [timed[kind][row] for kind, row in news if row in timed.get(kind, {})]
    within = f" in {1000 * (time.monotonic() - max(known)):.0f} ms" if known else ""
    return f"Node {act.node} took over {act.ip} from {act.before}{within}: {why.why}"


class PodMetadata(msgspec.Struct, frozen=True):
    """Fields that are read of this Pod."""

    metadata: ObjectMeta = ObjectMeta()


class GracefulHandover:
    """Handler of ConfirmAnnounced and ReleaseAddress, which keeps their facts while the address moves, and hands over before
    the agent ends.
    """

    def __init__(self, facts: Facts, kube: Kube, config: AgentConfig, node: str) -> None:
        self._facts, self._kube, self._config, self._node = facts, kube, config, node
        self.gossip: GossipFeed | None = None
        """The gossip; None if there is none (yet)."""
        self.others: list[Callable[[], bool]] = []
        """Checks whether other features are handing over, too."""

    async def receive(self, act: ConfirmAnnounced) -> None:
        """Handle the act without waiting: many addresses may come together."""
        if self._facts.get(ReleasedAddress, act.egress):
            self._facts.drop(ReleasedAddress, act.egress)  # it comes back, and may be parted with anew
        row = AnnouncedAddress(act.egress, act.ip, act.before)
        loop = asyncio.get_running_loop()
        loop.call_later(ANNOUNCE_SECONDS, self._announced, row, loop.time() + COPY_SECONDS)

    def _announced(self, row: AnnouncedAddress, until: float) -> None:
        """Have Pods' packets sent here, once this Node has copies of the connections, if the Egress asks for them."""
        egress, loop = self._facts.get(Egress, row.egress), asyncio.get_running_loop()
        copied = self._facts.get(CopiedAddress, row.ip)
        if (
            egress
            and egress.copies
            and loop.time() < until
            and (copied is None or copied.source != row.before)
        ):
            loop.call_later(LOOK_SECONDS, self._announced, row, until)
            return
        self._facts.put(row)
        self._await_answers(row)

    def _await_answers(self, row: AnnouncedAddress, seconds: float = LOOK_SECONDS) -> None:
        """Remove the row when the address is here and answers to earlier packets have come, or it goes elsewhere.

        Checks again after `seconds`, and then ever less often: kube-apiserver, which has the status, may be unavailable.
        """
        egress, owner = self._facts.get(Egress, row.egress), self._facts.get(EgressOwner, row.egress)
        ours = egress and egress.ip == row.ip and owner and owner.node == self._node
        if not egress or not ours:
            self._drop(row)
        elif egress.node == self._node:
            asyncio.get_running_loop().call_later(RELAY_SECONDS, self._drop, row)
        else:
            seconds = min(seconds, AWAY_SECONDS)
            asyncio.get_running_loop().call_later(seconds, self._await_answers, row, 2 * seconds)

    async def part(self, act: ReleaseAddress) -> None:
        """Handle the act without waiting: many addresses may go together."""
        row = ReleasedAddress(act.egress, act.ip, act.to)
        self._facts.put(row, urgent=True)
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._drop, row)

    def _drop(self, row: ReleasedAddress | AnnouncedAddress) -> None:
        if self._facts.get(type(row), row.key) == row:
            self._facts.drop(type(row), row.key)

    async def farewell(self) -> None:
        """Hand over before this process ends; returns when others have what this Node held, or after FAREWELL_SECONDS."""
        with _marked(Path(self._config.ovs_run_dir, ENDING)):
            if self.gossip is None:
                return
            if not (why := await self.handover_reason()):
                if self._config.ovs_datapath_type == "system" and await self._pod_ends():
                    log.info("The agent's next Pod is expected soon; Egress IPs stay")
                    self.gossip.return_soon()
                    await asyncio.sleep(SPREAD_SECONDS)
                return
            log.info("Handing over the Egress IPs of this Node", why=why)
            self._facts.put(AgentLeaving(), urgent=True)
            self.gossip.leave()
            began = time.monotonic()
            while (past := time.monotonic() - began) < FAREWELL_SECONDS:
                if past > ELECT_SECONDS and not self._hands_over():
                    return
                await asyncio.sleep(LOOK_SECONDS)
            log.warning("Not all Egress IPs of this Node were taken over", seconds=FAREWELL_SECONDS)

    async def handover_reason(self) -> str:
        """Return the reason to hand over all addresses; empty if there is none."""
        if self._facts.feeds.has(AgentNode):
            node = self._facts.get(AgentNode, self._node)
            if node is None:
                return "its Node is deleted"
            if node.cordoned:
                return "its Node is cordoned"
        if self._config.ovs_datapath_type == "netdev" and await self._pod_ends():
            return "its Pod ends, and the switch with it"
        return ""

    async def _pod_ends(self) -> bool:
        """Whether the whole Pod ends, not just a container of it."""
        namespace, pod = os.environ.get("POD_NAMESPACE", ""), os.environ.get("POD_NAME", "")
        if not namespace or not pod:
            return False
        with contextlib.suppress(TimeoutError, Unavailable, Refused):
            async with asyncio.timeout(ASK_SECONDS):
                pod_found = await self._kube.get(f"/api/v1/namespaces/{namespace}/pods/{pod}", PodMetadata)
            return pod_found is None or bool(pod_found.metadata.deletion_timestamp)
        return False

    def _hands_over(self) -> bool:
        """Whether there is an address that another Node is to take."""
        if any(hands_over() for hands_over in self.others):
            return True
        here = {row.ip for row in self._facts.all(LocalAddress) if row.dev.startswith((DEVICE, PREFIX))}
        owners = {row.egress: row.node for row in self._facts.all(EgressOwner)}
        held = (row for row in self._facts.all(Egress) if row.ip in here)
        return any(owners.get(row.key, "") not in ("", self._node) for row in held)


@contextlib.contextmanager
def _marked(file: Path) -> Iterator[None]:
    """Create the file for the time; best effort, since without it the switch does not wait."""
    with contextlib.suppress(OSError):
        file.touch()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            file.unlink()
