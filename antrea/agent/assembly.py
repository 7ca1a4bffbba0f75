"""The agent put together: facts, units, sinks, feeds and servers of one Node."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antrea.agent.agent_info import Report
from antrea.agent.agent_view import AgentView, received
from antrea.agent.api_server import AgentApi
from antrea.agent.bootstrap import prepare
from antrea.agent.cni_bridge import OvsPodPorts
from antrea.agent.cni_server import CniServer
from antrea.agent.cni_wiring import Wiring
from antrea.agent.cutting import Cutting
from antrea.agent.egress_node import EgressNode
from antrea.agent.features import COUNTED, FIRST_ROUND, OWN_PORTS, active, first_lists, pipeline_of, sweeps
from antrea.agent.handover import NEWS
from antrea.agent.health import Health
from antrea.agent.id_floor import keep_clear
from antrea.agent.lacking import follow
from antrea.agent.means import within_means
from antrea.agent.membership import Membership, cluster_feed
from antrea.agent.node_events import node_voice
from antrea.agent.nodes import ThisFeed, own_node, pod_feed
from antrea.agent.readiness import Readiness
from antrea.agent.remembering import Remembering
from antrea.agent.statistics import Statistics
from antrea.agent.switch_care import SwitchCare
from antrea.agent.switch_packets import SwitchPackets
from antrea.agent.word import Word
from antrea.apis.annotation import NodeAnnotation
from antrea.apis.policy_report import PolicyReport
from antrea.apis.status import Status
from antrea.config.shape import seconds
from antrea.engine import Engine, Facts
from antrea.errors import Refused, Unavailable
from antrea.facts.node import ThisNode, Transport
from antrea.facts.ovs import PodInterface
from antrea.facts.pod import LocalPod
from antrea.features.egress import owner as egress_placement
from antrea.features.egress.address import DEVICE as EGRESS_DEVICE
from antrea.features.egress.subnet import PREFIX as VLAN_DEVICES
from antrea.features.feature import Realised
from antrea.features.network_policy.cut import Look
from antrea.features.network_policy.service import Keep
from antrea.host.ovs_port import Port
from antrea.host.pod_cidr import held
from antrea.host.tunnel_neighbour import TunnelNeighbour
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside import klog
from antrea.outside.addresses import AddressFeed
from antrea.outside.controlplane import Controlplane
from antrea.outside.environment import own_namespace
from antrea.outside.gossip.feed import GossipFeed
from antrea.outside.journal import FileJournal
from antrea.outside.kube_feed import KindFeed
from antrea.outside.link_watch import LinkWatch
from antrea.outside.netlink import NetlinkSink
from antrea.outside.netns import NetnsWorker
from antrea.outside.nft import KINDS as NFT_KINDS
from antrea.outside.nft import NftSink
from antrea.outside.node_annotation import AnnotationSink
from antrea.outside.ofctl import FlowSink
from antrea.outside.ofctl_meters import MeterSink
from antrea.outside.ofctl_run import Ofctl
from antrea.outside.ofctl_watch import SwitchWatch
from antrea.outside.ovs_conntrack import Conntrack
from antrea.outside.ovs_control import Tracer
from antrea.outside.ovsdb import Ovsdb
from antrea.outside.ovsdb_ports import PortFeed
from antrea.outside.ovsdb_sink import PortSink
from antrea.outside.policy_report import PolicyReportSink
from antrea.outside.rtnetlink import KINDS as NETLINK_KINDS
from antrea.outside.status import StatusSink
from antrea.outside.tunnel_neighbour import TunnelNeighbourSink
from antrea.outside.voice import TRIES

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine

    from antrea.agent.bootstrap import Prepared
    from antrea.config.agent import AgentConfig
    from antrea.engine import Feed, Sink
    from antrea.facts.fact import Fact
    from antrea.features.gate import EnabledGates
    from antrea.outside.configuration import Configuration
    from antrea.outside.kube import Kube
    from antrea.outside.tls import Certificate

    AgentConfiguration = Configuration[AgentConfig, EnabledGates]


log = klog.logger(__name__)

JOURNAL = "ids"
"""File of the numbers that flows and rules carry, beside the CNI socket."""
COUNTERS = "policy-counters"
"""File of what those flows had counted when it was reported last."""
SEVERED = "severed"
"""File of the connections that were cut and stay so."""
PAUSE_SECONDS = 1.0
"""Between tries of what has to be there at start."""
FIRST_LIST_SECONDS = 10.0
"""How long the first replay waits for the list of Nodes; without it, it goes on with what is known."""


class Agent:
    """Everything of one Node, and the order in which it starts.

    Its servers come first, so that they can say what is missing, and the rest as soon as OVSDB and the Node are there.
    """

    def __init__(self, configuration: AgentConfiguration, kube: Kube, name: str, pair: Certificate) -> None:
        """`name` is that of the Node, `pair` what its API serves. Raises Invalid, Unavailable."""
        self.config = config = configuration.now.config
        self.kube = kube
        self.name, self.voice = name, node_voice(name)
        self.run_dir = (socket := Path(config.cni_socket)).parent
        switch = Path(config.ovs_run_dir, f"{config.ovs_bridge}.mgmt")
        self.ofctl, self.watch = Ofctl(switch), SwitchWatch(switch)
        self.journal, self.netns = FileJournal(self.run_dir / JOURNAL), NetnsWorker()
        self.facts = Facts(self.journal)
        self.facts.timed |= {kind: {} for kind in NEWS}
        self.packets = SwitchPackets(switch, config, self.facts)
        tracer, conntrack = Tracer(ovs := Path(config.ovs_run_dir), config.ovs_bridge), Conntrack(ovs)
        cut = self.run_dir / SEVERED
        self.cutting = Cutting(self.facts, config.host_gateway, conntrack, tracer, cut)
        self.ready = Readiness()
        self.egress = EgressNode(self.facts, kube, config, name, self._begin)
        self.annotations = AnnotationSink(kube)
        self.ports = OvsPodPorts(None, config.ovs_bridge)
        wiring = Wiring(
            self.ports,
            self.netns,
            node=lambda: self.facts.get(ThisNode),
            settle=self._settle,
            covered=self._covered,
            host_proc_prefix=config.host_proc_path_prefix,
            tx_off=config.ovs_datapath_type == "netdev" or config.disable_tx_checksum_offload,
        )
        self.cni = CniServer(wiring, self.ready, socket, waits_for=lambda: self.ready.waiting)
        self.features = active(configuration.now.gates.names)
        watches = [kind for feature in self.features for kind in feature.watches]
        self.controlplane = Controlplane(
            kube, name, watches, namespace=own_namespace(), path=config.antrea_client_connection.kubeconfig
        )
        self.word = Word(self.facts, self.controlplane, fail_open=config.policy_fail_open)
        self.memory = Remembering(self.facts, self.controlplane, self.word, self.features)
        self.health = Health(self.ready, lambda: self.controlplane.trouble, lambda: self.cni.trouble)
        self.view = AgentView(
            lambda: configuration.now,
            self.facts,
            self.ofctl,
            {},
            ready=dict(self.health.ready),
            live=dict(self.health.live),
            conditions=dict(self.health.conditions),
            received=lambda: received(self.facts),
            starts=self.word.starts,
        )
        self.api = AgentApi(self.view, pair, kube)
        self.report = Report(kube, self.view, pair.certificate_pem)

    async def run(self) -> None:
        """Until cancelled; whichever part fails ends all of them, and the container starts anew."""
        async with contextlib.AsyncExitStack() as last:
            last.callback(self.journal.close)
            last.callback(self.netns.close)
            last.push_async_callback(self.egress.close)
            async with asyncio.TaskGroup() as tasks:
                self.tasks = tasks
                tasks.create_task(self.memory.run(), name="last word")
                tasks.create_task(self.cni.run(), name="CNI server")
                tasks.create_task(self.api.run(), name="API server")
                tasks.create_task(self.controlplane.run(self.facts), name="controlplane")
                db = await self._database()
                last.push_async_callback(db.close)
                await self._connect(db, tasks)

    async def _database(self) -> Ovsdb:
        path = Path(self.config.ovs_run_dir, "db.sock")
        self.ready.wait_for(f"OVSDB at {path}", outside=True)
        while True:
            try:
                return await Ovsdb.connect(path)
            except Unavailable:
                await asyncio.sleep(PAUSE_SECONDS)

    async def _prepared(self, db: Ovsdb) -> Prepared:
        """Try until Node, OVS and transport interface are there. Raises Invalid: what only the user can change."""
        while True:
            try:
                prepared = await prepare(self.config, await own_node(self.kube, self.name), db)
                self.features = await within_means(self.features, self.ofctl)
                return prepared
            except (Unavailable, Refused) as no:
                self.ready.wait_for(str(no), outside=isinstance(no, Unavailable))
                await asyncio.sleep(PAUSE_SECONDS)

    async def _connect(self, db: Ovsdb, tasks: asyncio.TaskGroup) -> None:
        self.ports.open(db)
        prepared = await self._prepared(db)
        pipeline = pipeline_of(self.features, self.config, prepared.node)
        self.view.tables, self.view.ovs_version = dict(pipeline.ids), lambda: str(db.root["ovs_version"])
        for row in (self.config, self.view.now.gates, prepared.node, prepared.transport, Realised(pipeline)):
            self.facts.put(row)
        if self.journal.blank and prepared.cookie_round > FIRST_ROUND:
            await keep_clear(self.facts, self.ofctl)
        flows = FlowSink(self.ofctl, pipeline, prepared.cookie_round)
        self.view.operations, self.view.packets = flows.operations, self.packets.text
        self.view.overflow = self.packets.overflow
        netlink, meters = NetlinkSink(), MeterSink(self.ofctl)
        ports = PortSink(db, self.config.ovs_bridge, self.ofctl, OWN_PORTS)
        units = [unit for feature in self.features for unit in feature.units]
        sinks: dict[type, Sink] = {Flow: flows, Group: flows, Meter: meters, Port: ports}
        sinks |= dict.fromkeys(NETLINK_KINDS, netlink)
        sinks |= dict.fromkeys(NFT_KINDS, nft := NftSink())
        sinks |= {NodeAnnotation: self.annotations, Status: StatusSink(self.kube)}
        sinks[PolicyReport] = reports = PolicyReportSink(self.controlplane)
        sinks[TunnelNeighbour] = tunnels = TunnelNeighbourSink(Path(self.config.ovs_run_dir))
        for pool, most in (limit for feature in self.features for limit in feature.limits):
            self.facts.ids.limit(pool, most)
        for pool, low, high in (bounds for feature in self.features for bounds in feature.ranks):
            self.facts.ids.between(pool, low, high)
        acts = self.egress.acts() | {Keep: self.memory.keep, Look: self._look}
        self.engine = Engine(self.facts, units, sinks, acts, sweeps(self.view.now.gates.names))
        self.controlplane.connected = lambda: self.engine.resync(reports)
        switch = SwitchCare(self.watch, self.engine, db, (flows, meters, ports, netlink, nft, tunnels))
        self.health.follow(db, switch)
        tasks.create_task(self.report.run(), name="AntreaAgentInfo")
        for name, feed in self._feeds(db, prepared).items():
            tasks.create_task(feed.run(self.facts), name=f"feed of {name}")
        first = first_lists(self.view.now.gates.names, prepared.cookie_round)
        await self._listed(first, within=FIRST_LIST_SECONDS)
        self.ready.wait_for("flows and routes of this Node, not all in place")
        self._work(tasks, prepared.transport, netlink)
        tasks.create_task(switch.run(), name="switch")
        tasks.create_task(self.packets.run(), name="packets")
        self._count(tasks)
        tasks.create_task(tunnels.run(), name="tunnel neighbours")
        tasks.create_task(self.health.run(self.engine), name="health")
        await switch.works.wait()
        await self._reconcile()
        self.ready.set()
        log.info("Pods can be connected")
        if not self.facts.feeds.has(LocalPod):
            await self._listed((LocalPod,))
            await self._reconcile()

    def _count(self, tasks: asyncio.TaskGroup) -> None:
        """Report what policies match and Egresses send, each where its gate is on."""
        if counted := [one for gate, one in COUNTED.items() if gate in self.view.now.gates.names]:
            stats = Statistics(
                self.facts, self.ofctl, lambda: self.controlplane.controller, counted,
                node=self.name, tables=self.view.tables, keep=self.run_dir / COUNTERS,
            )  # fmt: skip
            every = seconds(self.config.network_policy_stats_interval)
            tasks.create_task(stats.run(every), name="statistics")

    def _work(self, tasks: asyncio.TaskGroup, link: Transport, netlink: NetlinkSink) -> None:
        """The engine begins, and what the kernel drops with an interface of ours comes back with that."""
        names = (self.config.host_gateway, link.interface, link.device, EGRESS_DEVICE)
        links = LinkWatch(
            lambda name: name in names or name.startswith(VLAN_DEVICES), lambda: self.engine.resync(netlink)
        )
        tasks.create_task(self.engine.run(), name="engine")
        tasks.create_task(follow(self.engine, self.facts), name="lacking")
        tasks.create_task(links.run(), name="interfaces")

    def _feeds(self, db: Ovsdb, prepared: Prepared) -> dict[str, Feed]:
        feeds: dict[str, Feed] = {
            "ports": PortFeed(db, self.config.ovs_bridge),
            "nodes": cluster_feed(self.kube),
            "node": ThisFeed(self.kube, prepared.node, self),
            "pods": pod_feed(self.kube, self.name),
            "addresses": AddressFeed(),
        }
        if egress_placement.FEATURE in self.features:
            address = prepared.node.transport_ips[0]
            gossip = GossipFeed(self.name, address, self.config.cluster_port)
            self.view.membership = Membership(self.kube, own_namespace(), gossip)
            feeds |= self.egress.feeds(db, self.view.membership)
        for one in (one for feature in self.features for one in feature.watched):
            feeds[one.path] = KindFeed(self.kube, one.path, one.kind, fact=one.fact, row=one.row)
        return feeds

    async def _listed(self, kinds: Collection[type[Fact]], within: float | None = None) -> None:
        """Wait for first lists: replaying in one piece is best, but Pods that stand get their flows without them."""
        try:
            with self.facts.news() as heard:
                async with asyncio.timeout(within):
                    while missing := [kind.__name__ for kind in kinds if not self.facts.feeds.has(kind)]:
                        self.ready.wait_for(f"first list of {', '.join(missing)}", level=2, outside=True)
                        heard.clear()
                        await heard.wait()
        except TimeoutError:
            log.warning("Not all lists are there yet; what is known is replayed first", missing=missing)

    async def _reconcile(self) -> None:
        """Remove the interfaces of Pods that vanished while no agent ran, once the list of Pods is complete."""
        pods = {pod.key for pod in self.facts.all(LocalPod)} if self.facts.feeds.has(LocalPod) else None
        await self.cni.reconcile(pods)

    async def _settle(self, pod: PodInterface) -> None:
        self.facts.put(pod, urgent=True)
        await self.engine.settled(PodInterface, pod.key)

    async def _look(self, act: Look) -> None:
        await self.cutting.look(self.engine, act)

    async def _covered(self, pod: str, uid: str) -> None:
        await self.word.covers(pod, uid)
        await self.engine.stand(Flow)

    def made_anew(self) -> None:
        """The Node object is another one: it lacks what this agent wrote on the one before."""
        log.warning("The Node object of this Node was made anew")
        self.engine.resync(self.annotations)

    def moved(self, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """The outcome is defined: new Pods get new addresses, and those that have old ones have lost their network."""
        left = [pod.pod for pod in self.facts.all(PodInterface) if not all(held(ip, now) for ip in pod.ips)]
        log.error("podCIDR of this Node has changed", now=now, before=before, pods=left)
        message = (
            f"podCIDR of this Node was {', '.join(before)} and is {', '.join(now)}: new Pods get addresses of it;"
            f" {len(left)} Pods have other addresses, which no longer work, and need to be deleted: {', '.join(left)}"
        )
        self._begin(self.voice.warn(self.kube, "PodCIDRChanged", message, tries=TRIES), "Event of podCIDR")

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.create_task(work, name=name)
