"""Feed of GossipMember, Quorum and SilenceReport: gossip in a thread with a loop of its own, so that no pass of the engine delays it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from antrea.facts.family import is_ipv6
from antrea.facts.member import AgentNode, GossipMember, Quorum, SilenceReport
from antrea.outside.gossip.message import Carried
from antrea.outside.gossip.transport import Gossip, now
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from antrea.engine import Facts
    from antrea.outside.gossip.swim import Change

log = klog.logger(__name__)

RETRY_SECONDS = 5.0
LEFT_SECONDS = 5.0
"""How long a member that left may still hand over what it holds; longer than antrea.features.egress.agent_part.graceful_handover.FAREWELL_SECONDS."""
SYNC_SECONDS = 10.0
LOOK_SECONDS = 0.1
"""Between two looks at the list of Nodes, while facts are written."""


def addresses(nodes: Iterable[AgentNode], me: str, address: str) -> dict[str, str]:
    """Where each other Node's agent is to be found: its first address of our own family."""
    address_by_name = {}
    for node in nodes:
        same = [
            transport_ip for transport_ip in node.transport_ips if is_ipv6(transport_ip) == is_ipv6(address)
        ]
        if node.name != me and node.gossips and same:
            address_by_name[node.name] = same[0]
    return address_by_name


class GossipFeed:
    """Peers are the Nodes that Kubernetes lists; keys are given by `keys`, and nothing is sent before there are some.

    The kinds are synced once this agent has been with a majority, or has looked for one for SYNC_SECONDS.
    """

    def __init__(self, me: str, address: str, port: int) -> None:
        """`address` is where this Node's tunnels end."""
        self._me, self._address, self._port = me, address, port
        self.gossip: Gossip | None = None
        """Running gossip."""
        self._keys: Sequence[bytes] = ()
        self._peers: Mapping[str, str] = {}
        self._seen: dict[str, bool | None] = {}
        """Results of BFD on switches."""
        self._silent: tuple[str, ...] | None = None
        """Networks in which neighbours do not answer this Node; None: not known yet."""
        self._lock = threading.Lock()
        self._thread: asyncio.AbstractEventLoop | None = None
        """The thread's loop, while it runs."""
        self._task: asyncio.Task[None] | None = None
        self._pending: list[Callable[[], object]] = []
        """Calls that the thread makes as soon as it runs."""
        self._deliver: Callable[[Sequence[Change], Quorum], None] = lambda _changes, _quorum: None
        self._report: Callable[[SilenceReport], None] = lambda _report: None
        self._receivers: dict[str, Callable[[str, bytes], None]] = {}
        """Functions of features for what members send them, by purpose; called in the agent's loop."""
        self._hand_on: Callable[[str, Carried], None] = lambda _sender, _message: None
        self._reported_quorum: Quorum | None = None
        self._away: frozenset[str] = frozenset()
        """Members that announced a restart, as last logged."""
        self.deaths = self.joins = 0
        """Changes seen since the start."""

    def keys(self, keys: Sequence[bytes]) -> None:
        """Shared keys, the first one for sealing."""
        self._keys = keys
        self._in_thread(self._arm)

    def report_bfd(self, node: str, up: bool | None, *, unsure: bool = False) -> None:
        """BFD found a switch up or down; None: it looks there no more, or is `unsure`."""

        def report() -> None:
            self._seen.pop(node, None)
            if up is not None or unsure:
                self._seen[node] = up
            if self.gossip:
                self.gossip.report_bfd(node, up, unsure=unsure)

        self._in_thread(report)

    def report_silence(self, networks: tuple[str, ...]) -> None:
        """Report to the others in which networks neighbours do not answer this Node."""

        def report() -> None:
            self._silent = networks
            self._arm()

        self._in_thread(report)

    def on_carried(self, purpose: str, receive: Callable[[str, bytes], None]) -> None:
        """Call `receive` with the sender and the bytes that members carry for this purpose."""
        self._receivers[purpose] = receive

    def carry(self, to: str, purpose: str, data: bytes) -> None:
        """Send bytes to a member that lives, sealed and in order; they may be lost."""

        def carry() -> None:
            if self.gossip:
                self.gossip.carry(to, Carried(purpose, data))

        self._in_thread(carry)

    def return_soon(self) -> None:
        """Announce to the others that this member restarts, switch and all: nothing is to move."""
        self.report_bfd(self._me, None, unsure=True)

    def leave(self) -> None:
        """Announce to the others that this member leaves, so that they need not detect it."""

        def leave() -> None:
            if self.gossip:
                self.gossip.leave()

        self._in_thread(leave)

    async def run(self, facts: Facts) -> None:
        """Run until cancelled. While the port is taken, keep trying: the rest of the agent works without gossip."""
        loop = asyncio.get_running_loop()

        def deliver(changes: Sequence[Change], quorum: Quorum) -> None:
            # the loop may have ended before the thread has
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._write, facts, changes, quorum)

        def write(report: SilenceReport) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(partial(facts.put, report, urgent=True))

        def hand_on(sender: str, message: Carried) -> None:
            receive = self._receivers.get(message.purpose)
            if receive is not None:
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(receive, sender, message.data)

        self._deliver, self._report, self._hand_on = deliver, write, hand_on
        with ThreadPoolExecutor(1, thread_name_prefix="gossip") as executor:
            work = loop.run_in_executor(executor, asyncio.run, self._main())
            follow = asyncio.create_task(self._follow(facts))
            late = loop.call_later(SYNC_SECONDS, _synced, facts)
            try:
                await asyncio.wait({work, follow}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                late.cancel()
                follow.cancel()
                self._in_thread(self._stop)
                await asyncio.wait({work, follow})
            work.result()

    # in the thread

    async def _main(self) -> None:
        self._task = asyncio.current_task()
        with self._lock:
            self._thread = asyncio.get_running_loop()
            pending, self._pending = self._pending, []
        for do in pending:
            do()
        try:
            with contextlib.suppress(asyncio.CancelledError):
                while True:
                    await self._gossip()
        finally:
            with self._lock:
                self._thread = None

    async def _gossip(self) -> None:
        self.gossip = Gossip(self._me, self._address, self._port, changed=self._changed)
        self._arm()
        for node, up in self._seen.items():
            self.gossip.report_bfd(node, up, unsure=up is None)
        try:
            await self.gossip.run()
        except Unavailable as error:
            log.error("Gossip cannot start", err=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    def _arm(self) -> None:
        if self.gossip:
            self.gossip.peers(self._peers)
            self.gossip.keys(self._keys)
            if self._silent is not None:
                self.gossip.machine.silence.observe(now(), self._silent)

    def _changed(self, gossip: Gossip, changes: Sequence[Change]) -> None:
        has, alive, of = gossip.machine.swim.census
        quorum = Quorum(has, alive, of)
        if (away := frozenset(gossip.machine.swim.bfd.away)) != self._away:
            for node in sorted(away - self._away):
                log.info("Member announced a short restart", node=node)
            self._away = away
        carried, gossip.machine.carried = gossip.machine.carried, []
        for sender, message in carried:
            self._hand_on(sender, message)
        silence = gossip.machine.silence
        while silence.changed:
            node = silence.changed.pop()
            self._report(SilenceReport(node, silence.reports[node]))
        if changes or quorum != self._reported_quorum:
            self._reported_quorum = quorum
            self._deliver(changes, quorum)

    def _stop(self) -> None:
        if self._task:
            self._task.cancel()

    # in the agent's loop

    def _in_thread(self, do: Callable[[], object]) -> None:
        with self._lock:
            if self._thread is None:
                self._pending.append(do)
            else:
                self._thread.call_soon_threadsafe(do)

    def _write(self, facts: Facts, changes: Sequence[Change], quorum: Quorum) -> None:
        for change in changes:
            log.info("Member lives" if change.alive else "Member is dead", node=change.node, why=change.why)
            self.joins += change.alive
            self.deaths += not change.alive
            row = GossipMember(change.node, change.alive, change.left, change.why)
            facts.put(row, urgent=True)
            if change.left:
                asyncio.get_running_loop().call_later(LEFT_SECONDS, _keep_member, facts, row)
        before = facts.get(Quorum)
        if quorum == before:
            return
        facts.put(quorum, urgent=True)
        if quorum.has != (before is not None and before.has):
            preposition = "With" if quorum.has else "Without"
            log.info(f"{preposition} a majority of agents", alive=quorum.alive, of=quorum.of)
        if quorum.has:
            _synced(facts)

    async def _follow(self, facts: Facts) -> None:
        """Pass added and removed Nodes to the thread."""
        before: Mapping[str, str] | None = None
        with facts.watch(AgentNode, GossipMember) as heard:
            while True:
                heard.clear()
                members = addresses(facts.all(AgentNode), self._me, self._address)
                if facts.feeds.has(AgentNode) and members != before:
                    before = self._peers = members
                    self._in_thread(self._arm)
                    for gone in {row.node for row in facts.all(GossipMember)} - members.keys():
                        facts.drop(GossipMember, gone, urgent=True)
                        facts.drop(SilenceReport, gone)
                await heard.wait()
                await asyncio.sleep(LOOK_SECONDS)


def _keep_member(facts: Facts, row: GossipMember) -> None:
    if facts.get(GossipMember, row.node) == row:
        facts.put(msgspec.structs.replace(row, left=False), urgent=True)


def _synced(facts: Facts) -> None:
    for kind in (GossipMember, Quorum):
        if not facts.feeds.has(kind):
            facts.synced(kind)
