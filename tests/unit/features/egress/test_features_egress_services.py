"""Which packets to Services keep clear of Egress: with AntreaProxy, only those that another proxy of the Node serves."""

from __future__ import annotations

from typing import Any

from antrea.agent.feature_set import active, pipeline_of
from antrea.config.agent import AgentConfig
from antrea.config.agent_sections import AntreaProxy
from antrea.engine import Engine, Facts
from antrea.facts.node import ThisNode
from antrea.facts.ovs import OvsPort
from antrea.facts.service import Service
from antrea.features.egress.agent.feature import FEATURE
from antrea.features.framework.gate import EnabledGates
from antrea.features.proxy.agent import FEATURE as PROXY
from antrea.openflow.flow import Flow

NODE = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
GATEWAY = OvsPort("antrea-gw0", "gateway", 2, "0a:00:00:00:00:01")


def kept_clear(config: AgentConfig, gates: set[str], *rows: Service) -> set[str]:
    """Destinations in table EgressMark that leave with the address of the host, the Node aside."""
    facts, pipeline = Facts(), pipeline_of(active(gates), config, NODE)
    for row in (config, NODE, GATEWAY, EnabledGates("agent", frozenset(gates)), *rows):
        facts.put(row)
    engine = Engine(facts, (*FEATURE.units, *(PROXY.units if PROXY.gate in gates else ())))
    engine.plan()
    assert not engine.errors.standing, engine.errors.standing
    flows = (entry.named(pipeline) for entry in engine.standing().values() if isinstance(entry, Flow))
    head = "table=EgressMark,priority=210,ip,nw_dst="
    found = {flow.removeprefix(head).partition(" ")[0] for flow in flows if flow.startswith(head)}
    return found - {"192.0.2.1"}


def test_with_antrea_proxy_only_services_that_it_leaves_to_others_keep_clear_of_egress() -> None:
    ports: dict[str, Any] = {"ports": (("TCP", 53),), "port_names": ("",), "node_ports": (0,)}
    dns = Service(
        "kube-system", "dns", ("10.96.0.10", "198.51.100.9"), external_ips=("198.51.100.9",), **ports
    )
    web = Service("shop", "web", ("10.96.0.11",), **ports)
    skipped = AgentConfig(antrea_proxy=AntreaProxy(skip_services=("kube-system/dns",)))
    assert kept_clear(skipped, {"Egress", "AntreaProxy"}, dns, web) == {"10.96.0.10"}
    assert kept_clear(skipped, {"Egress"}, dns, web) == {"10.96.0.0/12"}
