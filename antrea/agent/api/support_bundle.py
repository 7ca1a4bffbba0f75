"""Content of the agent's support bundle, in upstream's files where it has the same.

parity: pkg/support/dump.go, dump_others.go (agentDumper). Additional files: config, antrea-agent.conf, featuregates,
podinterfaces, conditions, tables, fqdncache, meters, ovs-*, neighbour, rule6, route6, memory and stacks (for memprofile and
goroutinestacks).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from antrea.agent.api.agent_info import agent_info
from antrea.config.effect import values
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_part import NotFound
from antrea.features.framework.gate import statuses
from antrea.features.framework.plug import merged
from antrea.outside.support_bundle.plan import Command, Logs, Order
from antrea.outside.support_bundle.server import memory, stacks
from antrea.outside.vswitch.appctl import sockets

if TYPE_CHECKING:
    from antrea.agent.api.view import AgentView

LOG_DIRECTORY = "/var/log/antrea"
HOST = (
    Command("nftables", ("nft", "list", "ruleset")),
    Command("iptables", ("iptables-save",)),
    Command("ip6tables", ("ip6tables-save",)),
    Command("ipset", ("ipset", "save")),
    Command("rule", ("ip", "rule")),
    Command("rule6", ("ip", "-6", "rule")),
    Command("route", ("ip", "route")),
    Command("route6", ("ip", "-6", "route")),
    Command("route-table-all", ("ip", "route", "show", "table", "all")),
    Command("link", ("ip", "-details", "-statistics", "link")),
    Command("address", ("ip", "address")),
    Command("neighbour", ("ip", "neighbour")),
)
"""Commands that print the Node's network."""


def switch(run_dir: str, bridge: str) -> tuple[Command, ...]:
    """Commands that print the state of Open vSwitch."""
    ofctl = ("ovs-ofctl", "-O", "OpenFlow15")
    target = f"unix:{Path(run_dir, f'{bridge}.mgmt')}"
    database = f"--db=unix:{Path(run_dir, 'db.sock')}"
    control = next(iter(sockets(Path(run_dir))), Path(run_dir, "ovs-vswitchd.ctl"))
    return (
        Command("flows", (*ofctl, "--names", "dump-flows", target)),
        Command("groups", (*ofctl, "--names", "dump-groups", target)),
        Command("meters", (*ofctl, "dump-meters", target)),
        Command("ovsports", (*ofctl, "dump-ports-desc", target)),
        Command("ovs-port-stats", (*ofctl, "--names", "dump-ports", target)),
        Command("ovs-vsctl-show", ("ovs-vsctl", "--timeout=10", database, "show")),
        Command("ovs-interfaces", ("ovs-vsctl", "--timeout=10", database, "list", "Interface")),
        Command("ovs-coverage", ("ovs-appctl", "--timeout=10", f"--target={control}", "coverage/show")),
    )


async def contents(view: AgentView, log_directory: str = LOG_DIRECTORY) -> Order:
    """Collect a support bundle of the agent's current state."""
    documents: dict[str, Any] = {
        "podinterfaces": view.facts.all(PodInterface),
        "featuregates": statuses(view.now.gates),
        "config": values(view.now),
        "conditions": {
            "live": {name: test() or "ok" for name, test in view.live.items()},
            "ready": {name: test() or "ok" for name, test in view.ready.items()},
        },
        "tables": view.tables,
    }
    try:
        documents["agentinfo"] = await agent_info(view)
    except NotFound as error:
        documents["agentinfo"] = {"message": str(error)}
    documents = merged("file", (documents, *(part.bundle() for part in view.parts)))
    texts = {view.config.file: view.now.text, "memory": memory(), "stacks": stacks()}
    return Order(
        target=os.devnull,
        documents=documents | texts,
        commands=(*switch(view.config.ovs_run_dir, view.config.ovs_bridge), *HOST),
        logs=(
            Logs("logs/agent", log_directory, "antrea-agent"),
            Logs("logs/ovs", log_directory, "ovs"),
        ),
    )
