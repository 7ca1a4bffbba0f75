"""The agent as a CNI call meets it, for benchmarks: every unit, sink and server on its path, but no Kubernetes API.

python -m benchmarks.cni_add_agent '{"run_dir": ..., "directory": ...}': see `Settings`. Needs the network namespace of a
switch whose bridge br-int has a gateway port; makes `directory`/ready once ADD can succeed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec

from antrea.agent.cni.context import CniContext
from antrea.agent.cni.pod_port import OvsPodPorts
from antrea.agent.cni.server import CniServer
from antrea.agent.feature_set import FEATURES, active, pipeline_of, sweeps
from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.node import PeerNode, ThisNode
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_feature import RealizedPipeline
from antrea.openflow.flow import Flow
from antrea.openflow.group import Group
from antrea.openflow.meter import Meter
from antrea.outside.netlink.entry import KINDS
from antrea.outside.netlink.netns import NetnsWorker
from antrea.outside.netlink.sink import NetlinkSink
from antrea.outside.nftables.sink import KINDS as NFT_KINDS
from antrea.outside.nftables.sink import NftSink
from antrea.outside.ovsdb.client import Ovsdb
from antrea.outside.ovsdb.port_feed import PortFeed
from antrea.outside.vswitch.flow_sink import FlowSink
from antrea.outside.vswitch.meter_sink import MeterSink
from antrea.outside.vswitch.ofctl import Ofctl

POD_CIDRS = ("10.244.1.0/24",)


class Settings(msgspec.Struct):
    run_dir: str
    """Where db.sock and br-int.mgmt are."""
    directory: str
    """Where cni.sock and the addresses are to be."""


async def run(settings: Settings) -> None:
    directory = Path(settings.directory)
    db = await Ovsdb.connect(Path(settings.run_dir, "db.sock"))
    config = AgentConfig(ovs_datapath_type="netdev")
    node = ThisNode(name="node-1", pod_cidrs=POD_CIDRS)
    pipeline = pipeline_of(FEATURES, config, node)
    facts = Facts()
    for row in (config, node, RealizedPipeline(pipeline)):
        facts.put(row)
    for kind in (ThisNode, PeerNode):
        facts.synced(kind)
    ofctl = Ofctl(Path(settings.run_dir, "br-int.mgmt"))
    flows = FlowSink(ofctl, pipeline, 1)
    netlink, nft = NetlinkSink(), NftSink()
    engine = Engine(
        facts,
        [unit for feature in FEATURES for unit in feature.units],
        {
            Flow: flows,
            Group: flows,
            Meter: MeterSink(ofctl),
            **dict.fromkeys(KINDS, netlink),
            **dict.fromkeys(NFT_KINDS, nft),
        },
        sweeps=sweeps(active(())),
    )

    async def settle(pod: PodInterface) -> None:
        facts.put(pod, urgent=True)
        await engine.settled(PodInterface, pod.key)

    context = CniContext(
        OvsPodPorts(db, "br-int"),
        NetnsWorker(),
        node=lambda: facts.get(ThisNode),
        settle=settle,
        covered=lambda *_: engine.stand(Flow),
        ipam_directory=directory / "ipam",
        tx_off=True,
    )
    ready = asyncio.Event()
    server = CniServer(context, ready, directory / "cni.sock")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(PortFeed(db, "br-int").run(facts))
        tasks.create_task(engine.run())
        tasks.create_task(server.run())
        await engine.quiet()
        ready.set()
        (directory / "ready").touch()


if __name__ == "__main__":
    asyncio.run(run(msgspec.json.decode(sys.argv[1], type=Settings)))
