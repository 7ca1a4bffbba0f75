"""Preparation of a machine outside the cluster before the first unit runs: the bridge alone.

Nothing here needs kube-apiserver: after a restart of Open vSwitch the path to it may need flows that are missing.
parity: pkg/agent/agent.go initVMLocalConfig, which waits for the ExternalNode
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from antrea.agent.node.bootstrap import Prepared
from antrea.facts.node import ThisNode
from antrea.host.ovs_port import Bridge
from antrea.outside.netlink.pod_veth import random_mac
from antrea.outside.ovsdb import write as ovsdb_write

if TYPE_CHECKING:
    from antrea.config.agent import AgentConfig
    from antrea.outside.ovsdb.client import Ovsdb


async def prepare_machine(config: AgentConfig, name: str, db: Ovsdb) -> Prepared:
    """Create or correct the bridge; `name` is Namespace and name of the ExternalNode. Raises Refused, Unavailable."""
    row = db.row("Bridge", config.ovs_bridge)
    datapath_id = row["other_config"].get("datapath-id") if row else None
    bridge = Bridge(
        name=config.ovs_bridge,
        datapath_type=config.ovs_datapath_type,
        fail_mode="secure",
        other_config=(("datapath-id", datapath_id or "0000" + random_mac().replace(":", "")),),
    )
    await ovsdb_write.ensure_bridge(db, bridge)
    await ovsdb_write.realized(db)
    cookie_round = await ovsdb_write.next_round(db, config.ovs_bridge)
    return Prepared(ThisNode(name=name, is_machine=True), None, cookie_round)
