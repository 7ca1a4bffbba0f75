"""Effects of ExternalNode in the agent: the interfaces that the ExternalNode of this machine lists are behind the switch.

They stay so when the agent ends, and come out when the ExternalNode is deleted, also if that happened while no agent ran.

A file lists the connected interfaces, which are closed from the machine's boot until policies are enforced on them: a unit of
systemd passes it to nft before the network is up (build/external-node/install.sh). The agent opens each interface once its policies are in the switch.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from antrea.apis.core import ObjectReference
from antrea.apis.crd import external
from antrea.apis.generated_entity import OWNER_API
from antrea.errors import Refused, Unavailable
from antrea.facts.machine import AgentMachine
from antrea.facts.ovs import PodInterface
from antrea.features.external_node.agent_part.connection import MARK, InterfaceConnector, card_name
from antrea.features.external_node.agent_part.journal import InterfaceJournal
from antrea.features.external_node.agent_part.selection import Cards, selected
from antrea.features.external_node.boot_guard import SET, TABLE, guard_script
from antrea.features.external_node.machine import external_node_row
from antrea.features.framework.admission import Watched
from antrea.features.framework.agent_part import Part
from antrea.features.network_policy.agent.received import SentAddressGroup, SentAppliedGroup, SentPolicy
from antrea.host.ovs_port import MachinePort
from antrea.openflow.flow import Flow
from antrea.outside.disk.atomic_file import exchange
from antrea.outside.log import klog
from antrea.outside.netlink import interface_settings as netlink
from antrea.outside.nftables.libnftables import Nft, NftError, connect

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Coroutine, Iterable, Mapping, Sequence

    from antrea.config.agent_sections import BypassRule
    from antrea.engine import Feed
    from antrea.features.framework.agent_part import AgentContext, Connected
    from antrea.outside.http.handlers import Check

log = klog.logger(__name__)

JOURNAL = "external-interfaces"
"""File of the interfaces that are connected, or half."""
LOOK_SECONDS, CLOSED_SECONDS = 5.0, 0.2
"""Seconds between checks of interfaces, which Open vSwitch or a person may have recreated; and while one is closed since the
boot.
"""
CONDITION, REASON = "InterfaceNotConnected", "InterfaceNotConnected"
FILE: Final = Path("/var/lib/antrea/boot-guard.nft")
"""File, which outlives a reboot."""


class BootGuard:
    """Boot guard of this machine."""

    def __init__(self, rules: Sequence[BypassRule], nft: Nft | None = None, path: Path = FILE) -> None:
        self._rules, self._path, self._nft = rules, path, nft or connect()
        self._closed = self._read()

    @property
    def closed(self) -> frozenset[str]:
        """Names of interfaces that are closed since the boot."""
        return self._closed

    def keep(self, names: Collection[str]) -> None:
        """Close these at the next boot. Raises OSError."""
        wanted = guard_script(names, self._rules).encode() if names else b""
        try:
            current = self._path.read_bytes()
        except FileNotFoundError:
            current = b""
        if wanted == current:
            return
        if not wanted:
            self._path.unlink()
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        exchange(self._path, [wanted], sync=True)

    def open(self, name: str) -> None:
        """Open an interface; idempotent. Raises Unavailable."""
        if name not in self._closed:
            return
        left = self._closed - {name}
        commands = f'delete element {TABLE} {SET} {{ "{name}" }}' if left else f"delete table {TABLE}"
        try:
            self._nft.run(commands)
        except NftError as error:
            raise Unavailable(f"opening {name} after the boot: {error}") from error
        self._closed = left
        log.info("Interface is open: its policies are enforced since the boot", interface=name)

    def _read(self) -> frozenset[str]:
        try:
            text = self._nft.run(f"list set {TABLE} {SET}")
        except NftError:
            return frozenset()
        return frozenset(re.findall(r'"([^"]+)"', text))


class ExternalNodePart(Part):
    """Part of this machine's ExternalNode."""

    def __init__(self, agent: AgentContext) -> None:
        self._agent = agent
        self._facts, self._config = agent.facts, agent.config
        self._namespace, _, self._name = agent.node.rpartition("/")
        self._journal = InterfaceJournal(agent.run_dir / JOURNAL)
        self._connector: InterfaceConnector | None = None
        self._guard = BootGuard(agent.config.external_node.policy_bypass_rules)
        self._trouble = ""

    def feeds(self, connected: Connected) -> Mapping[str, Feed]:
        tx_off = self._config.ovs_datapath_type == "netdev" or self._config.disable_tx_checksum_offload
        self._connector = InterfaceConnector(
            connected.db, self._config.ovs_bridge, self._journal, tx_off=tx_off
        )
        return {}

    def watched(self) -> Iterable[Watched]:
        root, _, plural = external.MACHINES.rpartition("/")
        path, this = f"{root}/namespaces/{self._namespace}/{plural}", f"metadata.name={self._name}"
        yield Watched(path, external.ExternalNode, AgentMachine, external_node_row, field_selector=this)

    def conditions(self) -> Mapping[str, Check]:
        return {CONDITION: lambda: self._trouble}

    async def run(self) -> None:
        """Align interfaces, unfinished steps of an earlier agent first: the path to kube-apiserver may lead through them."""
        if (connector := self._connector) is None:
            return
        await self._agent.ready.wait()
        for name in self._journal.names():
            await self._noted(self._resume(connector, name))
        with self._facts.watch(AgentMachine, PodInterface) as news:
            while True:
                news.clear()
                await self._noted(self._align(connector))
                try:
                    async with asyncio.timeout(CLOSED_SECONDS if self._guard.closed else LOOK_SECONDS):
                        await news.wait()
                except TimeoutError:
                    continue

    async def _resume(self, connector: InterfaceConnector, name: str) -> str:
        await connector.resume(name)
        return ""

    async def _align(self, connector: InterfaceConnector) -> str:
        """Align the interfaces; return what is wrong, empty if nothing."""
        node = self._facts.get(AgentMachine, f"{self._namespace}/{self._name}")
        if node is None:
            if not self._facts.feeds.has(AgentMachine):
                return await self._restored(connector)
            for name in connector.known():
                await connector.disconnect(name)
            self._guard.keep(())
            for name in self._guard.closed:
                self._guard.open(name)
            return f"there is no ExternalNode {self._namespace}/{self._name}: no policy protects this machine"
        selection = selected(node, Cards(netlink.held_addresses(MARK), connector.entities()))
        troubles = list(selection.troubles)
        self._guard.keep(selection.interfaces.keys() | self._guard.closed)
        for name, (entity, interface) in selection.interfaces.items():
            port = MachinePort(entity, node.namespace, interface.ips, card_name(name))
            troubles += await _failure(self._protect(connector, name, port))
        for name in connector.known():
            if name not in selection.interfaces:
                troubles += await _failure(connector.disconnect(name))
        return "; ".join([*troubles, *self._still_closed(selection.interfaces)])

    async def _restored(self, connector: InterfaceConnector) -> str:
        """Restore the connections from before the boot while kube-apiserver does not answer: earlier policies apply."""
        troubles: list[str] = []
        for name, port in connector.left_by_boot().items():
            troubles += await _failure(self._protect(connector, name, port))
        for name in self._guard.closed:
            await self._open(name)
        return "; ".join([*troubles, *self._still_closed(())])

    async def _protect(self, connector: InterfaceConnector, name: str, port: MachinePort) -> None:
        await connector.connect(name, port)
        await self._open(name)

    async def _open(self, name: str) -> None:
        """Let new connections in once policies of the controller, or of its cached state, are in the switch."""
        facts = self._facts
        is_known = facts.all(SentPolicy) or all(
            facts.feeds.has(kind) for kind in (SentPolicy, SentAddressGroup, SentAppliedGroup)
        )
        if name not in self._guard.closed or not is_known or facts.get(PodInterface, name) is None:
            return
        await self._agent.engine().settled(PodInterface, name)
        await self._agent.engine().stand(Flow)
        self._guard.open(name)

    def _still_closed(self, connected: Container[str]) -> list[str]:
        """Return interfaces that are closed for longer than a start takes."""
        trouble = self._agent.controlplane.trouble
        return [
            f"{name} lets no new connection in since the machine started"
            + (f" ({trouble})" if trouble else "")
            for name in sorted(self._guard.closed)
            if trouble or name not in connected
        ]

    def _reference(self) -> ObjectReference | None:
        """Return the ExternalNode with its UID, by which `kubectl describe` finds Events; None if there is none."""
        node = self._facts.get(AgentMachine, f"{self._namespace}/{self._name}")
        if node is None:
            return None
        return ObjectReference(external.MACHINE_KIND, node.name, node.namespace, node.uid, OWNER_API)

    async def _noted(self, work: Coroutine[Any, Any, str]) -> None:
        """Report what is wrong, once, in the log, a condition and an Event; it is tried again."""
        try:
            trouble = await work
        except (Refused, Unavailable, OSError) as error:
            trouble = f"{error} (trying again)"
        if trouble and trouble != self._trouble:
            log.warning("Interfaces are not as the ExternalNode lists them", err=trouble)
            self._agent.record(REASON, trouble, warning=True, about=self._reference())
        self._trouble = trouble


async def _failure(work: Coroutine[Any, Any, None]) -> tuple[str, ...]:
    """Return why one interface is not as it should be; the others do not wait for it."""
    try:
        await work
    except (Refused, Unavailable, OSError) as error:
        return (f"{error} (trying again)",)
    return ()


PART = ExternalNodePart
