"""The agent put together: facts, units, sinks, feeds and servers of one Node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from antrea.agent.api_server import AgentView, api_server
from antrea.agent.cni_bridge import OvsPodPorts
from antrea.agent.cni_server import CniServer
from antrea.agent.cni_wiring import Wiring
from antrea.agent.nodes import peer_feed, pod_feed, this_feed
from antrea.apis.annotation import NodeAnnotation
from antrea.engine import Engine, Facts
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import OvsPort, PodInterface
from antrea.facts.pod import LocalPod
from antrea.features.feature import Families, Realised
from antrea.features.node_network import agent as node_network
from antrea.features.node_route import agent as node_route
from antrea.features.pod_connectivity import agent as pod_connectivity
from antrea.features.proxy import agent as proxy
from antrea.host.address import Address
from antrea.host.link import Link
from antrea.host.nft import NftChain, NftElement, NftRule, NftSet, NftShield
from antrea.host.route import Neighbour, Route, Rule
from antrea.host.sysctl import Sysctl
from antrea.openflow.cookie import Category
from antrea.openflow.flow import Flow
from antrea.openflow.pipeline import Pipeline
from antrea.outside import klog, ovsdb_write
from antrea.outside.netlink import NetlinkSink
from antrea.outside.netns import NetnsWorker
from antrea.outside.nft import NftSink
from antrea.outside.node_annotation import AnnotationSink
from antrea.outside.ofctl import FlowSink
from antrea.outside.ofctl_run import Ofctl
from antrea.outside.ofctl_watch import SwitchWatch
from antrea.outside.ovsdb_ports import PortFeed

if TYPE_CHECKING:
    from antrea.agent.bootstrap import Prepared
    from antrea.config.agent import AgentConfig
    from antrea.engine import Sink
    from antrea.facts.fact import Fact
    from antrea.features.feature import AgentFeature
    from antrea.features.gate import EnabledGates
    from antrea.outside.kube import Kube
    from antrea.outside.ovsdb import Ovsdb

log = klog.logger(__name__)

FEATURES: tuple[AgentFeature, ...] = (
    pod_connectivity.FEATURE,
    node_network.FEATURE,
    node_route.FEATURE,
    proxy.FEATURE,
)
# What must be known before that which an earlier start left may go: all Pods, all Nodes.
SWEEPS = {int(category): (PodInterface, OvsPort, PeerNode, ThisNode) for category in Category}
RESTORE_FLAG = "flow-restore-wait"
FIRST_LISTS: tuple[type[Fact], ...] = (PodInterface, OvsPort, PeerNode, LocalPod)
FIRST_LIST_SECONDS = 10.0
"""How long the first replay waits for the list of Nodes; without it, it goes on with what is known."""


def pipeline_of(config: AgentConfig, node: ThisNode) -> Pipeline:
    """The tables that the features ask for, numbered for the life of this agent."""
    families = Families.of(node.pod_cidrs)
    return Pipeline.realise(table for feature in FEATURES for table in feature.tables(config, families))


class Feed(Protocol):
    """Lists, then watches, and writes facts."""

    async def run(self, facts: Facts) -> None: ...


class Agent:
    """Everything of one Node, and the order in which it starts."""

    def __init__(
        self, config: AgentConfig, gates: EnabledGates, kube: Kube, db: Ovsdb, prepared: Prepared
    ) -> None:
        self.config = config
        self.db = db
        self.pipeline = pipeline_of(config, prepared.node)
        socket = Path(config.ovs_run_dir, f"{config.ovs_bridge}.mgmt")
        ofctl, self.watch = Ofctl(socket), SwitchWatch(socket)
        self.flows = FlowSink(ofctl, self.pipeline, prepared.cookie_round)
        self.netlink, nft = NetlinkSink(), NftSink()
        self.facts = Facts()
        for row in (config, gates, prepared.node, prepared.transport, Realised(self.pipeline)):
            self.facts.put(row)
        sinks: dict[type, Sink] = {Flow: self.flows, NodeAnnotation: AnnotationSink(kube)}
        sinks |= dict.fromkeys((Link, Address, Route, Rule, Neighbour, Sysctl), self.netlink)
        sinks |= dict.fromkeys((NftChain, NftSet, NftRule, NftElement, NftShield), nft)
        units = [unit for feature in FEATURES for unit in feature.units]
        self.engine = Engine(self.facts, units, sinks, sweeps=SWEEPS)
        node = prepared.node.name
        self.feeds: dict[str, Feed] = {
            "ports": PortFeed(db, config.ovs_bridge),
            "peers": peer_feed(kube, node),
            "node": this_feed(kube, prepared.node),
            "pods": pod_feed(kube, node),
        }
        self.network_ready = asyncio.Event()
        wiring = Wiring(
            OvsPodPorts(db, config.ovs_bridge),
            NetnsWorker(),
            node=lambda: self.facts.get(ThisNode),
            settle=self._settle,
            host_proc_prefix=config.host_proc_path_prefix,
            tx_off=config.ovs_datapath_type == "netdev" or config.disable_tx_checksum_offload,
        )
        self.cni = CniServer(wiring, self.network_ready, Path(config.cni_socket))
        view = AgentView(
            config, gates, self.facts, ofctl, dict(self.pipeline.ids), {"network": self._unready}
        )
        self.api = api_server(view)

    async def run(self) -> None:
        """Until cancelled; whichever part fails ends all of them, and the container starts anew."""
        async with asyncio.TaskGroup() as tasks:
            for name, feed in self.feeds.items():
                tasks.create_task(feed.run(self.facts), name=f"feed of {name}")
            tasks.create_task(self.cni.run(), name="CNI server")
            tasks.create_task(self.api.run(), name="API server")
            await self._first_list()
            tasks.create_task(self.engine.run(), name="engine")
            tasks.create_task(self.watch.run(self._switch_came_back), name="switch")
            await self.engine.quiet()
            await self._let_switch_work()
            await self._reconcile()
            self.network_ready.set()
            log.info("Pods can be connected")

    async def _first_list(self) -> None:
        """Replay in one piece if the API server answers soon; if it is away, Pods that stand still get their flows."""
        heard = asyncio.Event()
        self.facts.listeners.append(heard.set)
        try:
            async with asyncio.timeout(FIRST_LIST_SECONDS):
                while not all(self.facts.feeds.has(kind) for kind in FIRST_LISTS):
                    heard.clear()
                    await heard.wait()
        except TimeoutError:
            log.warning("Not all lists are there yet; what is known is replayed first")
        finally:
            self.facts.listeners.remove(heard.set)

    def _unready(self) -> str:
        """Why Pods cannot be connected yet, for /readyz."""
        return "" if self.network_ready.is_set() else "flows and routes of this Node are not all in place"

    def _switch_came_back(self) -> None:
        """A new ovs-vswitchd has no flows, and its internal ports are new devices without addresses."""
        log.warning("ovs-vswitchd came back, replaying flows")
        self.engine.resync(self.flows)
        self.engine.resync(self.netlink)

    async def _let_switch_work(self) -> None:
        """Flows stand: ovs-vswitchd may drop what its datapath cached from before and ask its tables again."""
        await ovsdb_write.set_keys(
            self.db, "Open_vSwitch", ".", column="other_config", keys={RESTORE_FLAG: None}
        )

    async def _reconcile(self) -> None:
        """Remove the interfaces of Pods that vanished while no agent ran."""
        pods = {pod.key for pod in self.facts.all(LocalPod)} if self.facts.feeds.has(LocalPod) else None
        await self.cni.reconcile(pods)

    async def _settle(self, pod: PodInterface) -> None:
        self.facts.put(pod, urgent=True)
        await self.engine.settled(PodInterface, pod.key)
