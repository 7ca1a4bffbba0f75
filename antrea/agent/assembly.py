"""Assembly of the agent: facts, units, sinks, feeds and servers of one Node."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antrea.agent.api.agent_info import Report
from antrea.agent.api.health import Health, Readiness
from antrea.agent.api.server import AgentApi
from antrea.agent.api.support_bundle import contents
from antrea.agent.api.view import AgentView
from antrea.agent.cni.context import CniContext
from antrea.agent.cni.pod_port import OvsPodPorts
from antrea.agent.cni.policy_gate import PolicyGate
from antrea.agent.cni.server import CniServer
from antrea.agent.controller_state import ControllerStateCache
from antrea.agent.feature_set import (
    FIRST_ROUND,
    active,
    first_lists,
    folders_on,
    own_ports,
    pipeline_of,
    sweeps,
)
from antrea.agent.role import role_of
from antrea.agent.switch.capabilities import supported_features
from antrea.agent.switch.id_recovery import reserve_used_ids
from antrea.agent.switch.packet_in import SwitchPackets
from antrea.agent.switch.recovery import SwitchRecovery
from antrea.agent.switch.traffic_statistics import TrafficStatistics
from antrea.agent.unrealized_feed import follow
from antrea.apis.annotation import NodeAnnotation
from antrea.apis.status import Status
from antrea.config.shape import seconds
from antrea.engine import Engine, Facts
from antrea.errors import Refused, Unavailable
from antrea.facts.node import ThisNode, Transport
from antrea.facts.ovs import PodInterface
from antrea.facts.pod import LocalPod
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.features.framework.agent_part import AgentContext, Connected, idle_metrics, make_parts
from antrea.features.framework.plug import merged
from antrea.features.framework.watch_plan import watch_plan
from antrea.host.ovs_port import Port
from antrea.host.pod_cidr import held
from antrea.host.tunnel_neighbour import TunnelNeighbour
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.controlplane.client import Controlplane
from antrea.outside.disk.id_journal import FileJournal
from antrea.outside.isolation import CONDITION, Isolation
from antrea.outside.kube.environment import own_namespace
from antrea.outside.kube.event_recorder import TRIES
from antrea.outside.kube.node_annotation_sink import AnnotationSink
from antrea.outside.kube.node_recorder import node_recorder
from antrea.outside.kube.odd_object import OddObjects
from antrea.outside.kube.resource_feed import ResourceFeed
from antrea.outside.kube.status_sink import StatusSink
from antrea.outside.log import klog
from antrea.outside.netlink.entry import KINDS as NETLINK_KINDS
from antrea.outside.netlink.host_feed import address_feed, link_feed
from antrea.outside.netlink.link_watch import LinkWatch
from antrea.outside.netlink.netns import NetnsWorker
from antrea.outside.netlink.sink import NetlinkSink
from antrea.outside.nftables.sink import KINDS as NFT_KINDS
from antrea.outside.nftables.sink import NftSink
from antrea.outside.nftables.table_reader import NftCounters
from antrea.outside.nftables.watch import NftWatch
from antrea.outside.ovsdb.client import Ovsdb
from antrea.outside.ovsdb.port_feed import PortFeed
from antrea.outside.ovsdb.write import name_tables
from antrea.outside.vswitch.conntrack import Conntrack
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl
from antrea.outside.vswitch.port_sink import PortSink
from antrea.outside.vswitch.tunnel_neighbour_sink import TunnelNeighbourSink
from antrea.outside.vswitch.watch import SwitchWatch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping

    from antrea.agent.api.certificate import ApiCertificate
    from antrea.agent.node.bootstrap import Prepared
    from antrea.agent.rebuild import Rebuild
    from antrea.config.agent import AgentConfig
    from antrea.engine import Feed, Sink
    from antrea.facts.fact import Fact
    from antrea.features.framework.agent_part import Part
    from antrea.features.framework.gate import EnabledGates
    from antrea.features.framework.watch_plan import Watch
    from antrea.openflow.pipeline import Pipeline
    from antrea.outside.kube.client import Kube
    from antrea.outside.reload.configuration import Configuration

    AgentConfiguration = Configuration[AgentConfig, EnabledGates]


log = klog.logger(__name__)

JOURNAL = "ids"
"""File of the numbers that flows and rules carry, beside the CNI socket."""
COUNTERS = "policy-counters"
"""File of the flow counters that were reported last."""
ESSENTIAL_FEEDS = frozenset({"ports", "addresses", "interfaces", "node"})
"""Feeds whose failure ends the agent, beside `Part.essential_feeds`: docs/decisions/0010-isolated-parts.md."""
PAUSE_SECONDS = 1.0
"""Seconds between tries of the preparation at start."""
FIRST_LIST_SECONDS = 10.0
"""Seconds that the first replay waits for the list of Nodes; without it, the replay continues with what is known."""


class Agent:
    """All components of one Node's agent, and the order in which they start.

    Servers start first, so that they can report what is missing, and the rest once OVSDB and the Node are available.
    """

    def __init__(
        self,
        configuration: AgentConfiguration,
        kube: Kube,
        name: str,
        certificate: ApiCertificate,
        rebuild: Rebuild,
    ) -> None:
        """`name` is that of the Node, `certificate` that of the API. Raises Invalid, Unavailable."""
        self.config = config = configuration.now.config
        self.kube = kube
        self.role = role_of(config, kube, name)
        self.name, self.recorder = self.role.name, node_recorder(self.role.name)
        self.run_dir = (socket := Path(config.cni_socket)).parent
        switch = Path(config.ovs_run_dir, f"{config.ovs_bridge}.mgmt")
        self.ofctl, self.watch = Ofctl(switch), SwitchWatch(switch)
        self.journal, self.netns = FileJournal(self.run_dir / JOURNAL), NetnsWorker()
        self.facts = Facts(self.journal)
        self.packets = SwitchPackets(switch, config)
        self.ready = Readiness()
        self.annotations, self.isolation = AnnotationSink(kube), Isolation()
        self.ports = OvsPodPorts(None, config.ovs_bridge)
        self.cni = self._cni(socket)
        self.features = active(configuration.now.gates.names, node_type=config.node_type)
        watches = [kind for feature in self.features for kind in feature.watches]
        self.controlplane = Controlplane(
            kube,
            self.name,
            watches,
            namespace=own_namespace(),
            path=config.antrea_client_connection.kubeconfig,
        )
        lacking = [feature.lacking for feature in self.features if feature.lacking]
        self.gate = PolicyGate(
            self.facts, self.controlplane, fail_open=config.policy_fail_open, lacking=lacking
        )
        self.state_cache = ControllerStateCache(self.facts, self.controlplane, self.gate, self.features)
        cni = (lambda: self.cni.trouble) if self.role.has_pods else str
        self.health = Health(self.ready, lambda: self.controlplane.trouble, cni)
        self.parts = self._parts(configuration.now.gates)
        for part in self.parts:
            self.packets.deliver(part.packet_ins())
        self.view = self._view(configuration, rebuild)
        rebuild.begins(self.ready)
        self.certificate = certificate
        listens = partial(rebuild.listener.listen, address=self.role.api_address)
        self.api = AgentApi(self.view, certificate.pair, kube, listens=listens)
        self.report = Report(kube, self.view, lambda: certificate.trusted)

    def _cni(self, socket: Path) -> CniServer:
        """Create the CNI server; it runs only where Pods can be."""
        config = self.config
        context = CniContext(
            self.ports,
            self.netns,
            node=lambda: self.facts.get(ThisNode),
            settle=self._settle,
            covered=self._covered,
            host_proc_prefix=config.host_proc_path_prefix,
            tx_off=config.ovs_datapath_type == "netdev" or config.disable_tx_checksum_offload,
        )
        return CniServer(context, self.ready, socket, waits_for=lambda: self.ready.waiting)

    def _parts(self, gates: EnabledGates) -> list[Part]:
        """Create the parts of the features that are on."""
        context = AgentContext(
            node=self.name, config=self.config, gates=gates, facts=self.facts, kube=self.kube,
            controlplane=self.controlplane, run_dir=self.run_dir, ready=self.ready, engine=lambda: self.engine,
            begin=self._begin, send=self.packets.send, resume=self.packets.resume, save_state=self.state_cache.save,
            bundle=lambda: contents(self.view),
        )  # fmt: skip
        return make_parts(context, folders_on(gates.names, self.config.node_type))

    def _view(self, configuration: AgentConfiguration, rebuild: Rebuild) -> AgentView:
        """Create the view of the agent for its API."""
        alone = {CONDITION: self.isolation.failed}
        return AgentView(
            lambda: configuration.now,
            self.facts,
            self.ofctl,
            {},
            ready=dict(self.health.ready),
            live=dict(self.health.live),
            conditions=dict(self.health.conditions),
            troubles=merged("condition", (alone, *(part.conditions() for part in self.parts))),
            parts=self.parts,
            idle_metrics=idle_metrics(folders_on(configuration.now.gates.names, self.config.node_type)),
            starts=self.gate.starts,
            tolerant=rebuild.under_way,
            isolation=self.isolation,
        )

    async def run(self) -> None:
        """Run until cancelled. A failure ends the whole agent, and the container restarts, except for what `isolation` runs."""
        async with contextlib.AsyncExitStack() as last:
            last.callback(self.journal.close)
            last.callback(self.netns.close)
            for part in self.parts:
                last.push_async_callback(part.close)
            async with asyncio.TaskGroup() as tasks:
                self.tasks = tasks
                self._isolate("controller state cache", self.state_cache.run)
                if self.role.has_pods:
                    tasks.create_task(self.cni.run(), name="CNI server")
                tasks.create_task(self.api.run(), name="API server")
                renewal = self.certificate.run(self.api.present, lambda: self.report.published)
                tasks.create_task(renewal, name="API certificate renewal")
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

    async def _prepared(self, db: Ovsdb) -> tuple[Prepared, Pipeline]:
        """Try until Node, OVS and transport interface are available. Raises Invalid, which only the user can correct."""
        while True:
            try:
                prepared = await self.role.prepare(db)
                self.features = await supported_features(self.features, self.ofctl)
                pipeline = pipeline_of(self.features, self.config, prepared.node)
                await name_tables(db, self.config.ovs_bridge, pipeline.ids)
                return prepared, pipeline
            except (Unavailable, Refused) as error:
                self.ready.wait_for(str(error), outside=isinstance(error, Unavailable))
                await asyncio.sleep(PAUSE_SECONDS)

    async def _connect(self, db: Ovsdb, tasks: asyncio.TaskGroup) -> None:
        self.ports.open(db)
        prepared, pipeline = await self._prepared(db)
        self.view.tables, self.view.ovs_version = dict(pipeline.ids), lambda: str(db.root["ovs_version"])
        for row in (self.config, self.view.now.gates, prepared.node, prepared.transport):
            if row is not None:
                self.facts.put(row)
        self.facts.put(RealizedPipeline(pipeline))
        netlink = NetlinkSink(self.config.host_gateway)
        if not self.journal.complete and prepared.cookie_round > FIRST_ROUND:
            await reserve_used_ids(self.facts, self.ofctl, await netlink.rules())
        flows = FlowSink(self.ofctl, pipeline, prepared.cookie_round)
        self.view.operations, self.view.packets = flows.operations, self.packets.text
        self.view.overflow, meters = self.packets.overflow, MeterSink(self.ofctl)
        self.view.connections = Conntrack(Path(self.config.ovs_run_dir)).usage
        ports = PortSink(db, self.config.ovs_bridge, self.ofctl, own_ports())
        units = [unit for feature in self.features for unit in feature.units]
        nft, tunnels = NftSink(), TunnelNeighbourSink(Path(self.config.ovs_run_dir))
        common: tuple[dict[type, Sink], ...] = (
            {Flow: flows, Group: flows, Meter: meters, Port: ports, TunnelNeighbour: tunnels},
            {NodeAnnotation: self.annotations, Status: StatusSink(self.kube)},
            dict.fromkeys(NETLINK_KINDS, netlink),
            dict.fromkeys(NFT_KINDS, nft),
        )
        sinks = merged("sink of", (*common, *(part.sinks() for part in self.parts)))
        self._limit_numbers()
        acts = merged("act", (part.acts() for part in self.parts))
        self.engine = Engine(self.facts, units, sinks, acts, sweeps(self.features))
        switch = SwitchRecovery(self.watch, self.engine, db, (flows, meters, ports, netlink, nft, tunnels))
        self.health.follow(db, switch)
        self._isolate("AntreaAgentInfo", self.report.run)
        self._start_feeds(self._feeds(db, prepared))
        first = first_lists(self.features, prepared.cookie_round)
        await self._listed(first, within=FIRST_LIST_SECONDS)
        self.ready.wait_for("flows and routes of this Node")
        self._work(tasks, prepared.transport, netlink, nft)
        tasks.create_task(switch.run(), name="switch recovery")
        tasks.create_task(self.packets.run(), name="packet-ins")
        self._count()
        self._isolate("tunnel neighbors", tunnels.run)
        tasks.create_task(self.health.run(self.engine), name="health checks")
        await switch.works.wait()
        await self._reconcile()
        self.ready.set()
        log.info("Pods can be connected" if self.role.has_pods else "Interfaces can be connected")
        if not self.facts.feeds.has(LocalPod):
            await self._listed((LocalPod,))
            await self._reconcile()

    def _limit_numbers(self) -> None:
        """Set the bounds of the pools of numbers that features declare. Raises ValueError if two features declare the same
        pool.
        """
        for pool, most in merged("pool", (dict(feature.limits) for feature in self.features)).items():
            self.facts.ids.limit(pool, most)
        ranks = ({pool: bounds for pool, *bounds in feature.ranks} for feature in self.features)
        for pool, (low, high) in merged("pool", ranks).items():
            self.facts.ids.between(pool, low, high)

    def _start_feeds(self, feeds: Mapping[str, Feed]) -> None:
        """Run the feeds; those that are essential end the agent when they fail."""
        essential = ESSENTIAL_FEEDS.union(*(part.essential_feeds for part in self.parts))
        for name, feed in feeds.items():
            if name in essential:
                self.tasks.create_task(feed.run(self.facts), name=f"feed of {name}")
            else:
                self._isolate(f"feed of {name}", partial(feed.run, self.facts))

    def _count(self) -> None:
        """Report what policies match and Egresses send, each if its gate is on."""
        if counted := [feature.counted for feature in self.features if feature.counted]:
            stats = TrafficStatistics(
                self.facts, self.ofctl, lambda: self.controlplane.controller, counted,
                node=self.name, tables=self.view.tables, counters=NftCounters().read, keep=self.run_dir / COUNTERS,
            )  # fmt: skip
            every = seconds(self.config.network_policy_stats_interval)
            self._isolate("statistics", partial(stats.run, every))

    def _work(
        self, tasks: asyncio.TaskGroup, link: Transport | None, netlink: NetlinkSink, nft: NftSink
    ) -> None:
        """Start the engine, and watches that restore what the kernel drops with an interface, or what others change in
        nftables.
        """
        names = (self.config.host_gateway, *((link.interface, link.device) if link else ()))
        links = LinkWatch(
            lambda name: name in names or any(part.owns(name) for part in self.parts),
            lambda: self.engine.resync(netlink),
        )
        tasks.create_task(self.engine.run(), name="engine")
        tasks.create_task(follow(self.engine, self.facts), name="feed of unrealized entries")
        self._isolate("interface watch", links.run)
        if nft.in_process:
            others = NftWatch(lambda: self.engine.resync(nft))
            self._isolate("nftables watch", others.run)
        for part in self.parts:
            self._isolate(type(part).__name__, part.run)

    def _feeds(self, db: Ovsdb, prepared: Prepared) -> dict[str, Feed]:
        feeds: dict[str, Feed] = {
            "ports": PortFeed(db, self.config.ovs_bridge),
            "addresses": address_feed(),
            "interfaces": link_feed(),
            **self.role.feeds(prepared, self),
        }
        connected = Connected(db, prepared.node)
        watches = {watch.name: self._watch_feed(watch) for watch in self._watch_plan()}
        return merged("feed of", (feeds, watches, *(part.feeds(connected) for part in self.parts)))

    def _watch_plan(self) -> tuple[Watch, ...]:
        """Plan all watches of kube-apiserver that this agent has, each once."""
        declared = [
            *self.role.watched,
            *(watched for feature in self.features for watched in feature.watched),
        ]
        return watch_plan(
            (*declared, *(watched for part in self.parts for watched in part.watched())), self.name
        )

    def _watch_feed(self, watch: Watch) -> Feed:
        odd = OddObjects(watch.path, "antrea-agent", self.name)
        return ResourceFeed(
            self.kube, watch.path, watch.kind, rows=watch.rows, query=watch.query, odd=odd,
            optional=watch.optional, metadata_only=watch.metadata_only,
        )  # fmt: skip

    async def _listed(self, kinds: Collection[type[Fact]], within: float | None = None) -> None:
        """Wait for first lists: one complete replay is best, but without them established Pods get their flows all the same."""
        try:
            with self.facts.watch(*kinds) as heard:
                async with asyncio.timeout(within):
                    while missing := [kind.__name__ for kind in kinds if not self.facts.feeds.has(kind)]:
                        self.ready.wait_for(f"first list of {', '.join(missing)}", level=2, outside=True)
                        heard.clear()
                        await heard.wait()
        except TimeoutError:
            log.warning("Not all lists are complete; replaying what was received so far", missing=missing)

    async def _reconcile(self) -> None:
        """Remove the interfaces of Pods that vanished while no agent ran, once the list of Pods is complete."""
        if not self.role.has_pods:
            return
        pods = {pod.key for pod in self.facts.all(LocalPod)} if self.facts.feeds.has(LocalPod) else None
        await self.cni.reconcile(pods)

    async def _settle(self, pod: PodInterface) -> None:
        self.facts.put(pod, urgent=True)
        await self.engine.settled(PodInterface, pod.key)

    async def _covered(self, pod: str, uid: str) -> None:
        await self.gate.wait(pod, uid)
        await self.engine.stand(Flow)

    def made_anew(self) -> None:
        """Write the annotations again: the recreated Node object lacks them."""
        log.warning("The Node object of this Node was recreated")
        self.engine.resync(self.annotations)

    def moved(self, before: tuple[str, ...], now: tuple[str, ...]) -> None:
        """Report the Pods with addresses of the previous podCIDR, which have lost their network; new Pods get new addresses."""
        left = [pod.pod for pod in self.facts.all(PodInterface) if not all(held(ip, now) for ip in pod.ips)]
        log.error("podCIDR of this Node has changed", now=now, before=before, pods=left)
        message = (
            f"podCIDR of this Node was {', '.join(before)} and is {', '.join(now)}: new Pods get addresses of it;"
            f" {len(left)} Pods have other addresses, which no longer work, and need to be deleted: {', '.join(left)}"
        )
        self._begin(
            self.recorder.warn(self.kube, "PodCIDRChanged", message, tries=TRIES), "Event PodCIDRChanged"
        )

    async def farewell(self) -> None:
        """Hand over what other Nodes can take, before this process ends for good."""
        await asyncio.gather(*(part.farewell() for part in self.parts))

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self.tasks.create_task(self.isolation.once(name, work), name=name)

    def _isolate(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        self.tasks.create_task(self.isolation.keep(name, work), name=name)
