"""What the agent tells Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from agent_context import agent_parts
from prometheus_client.parser import text_string_to_metric_families

from antrea.agent.api.metrics import agent_metrics
from antrea.agent.api.view import AgentView
from antrea.apis.controlplane import NetworkPolicy, NetworkPolicyPeer, NetworkPolicyRule
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_part import Part
from antrea.features.framework.config_validation import accept_agent
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.rule import PolicyRule, RuleOrder
from antrea.outside.vswitch.conntrack import Usage, kernel_usage

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


METERS = (
    "meter:256 flow_count:7 packet_in_count:10 byte_in_count:600 duration:1.5s bands:",
    "0: packet_count:8 byte_count:480",
    "meter:3 flow_count:1 packet_in_count:9 byte_in_count:600 duration:1.5s bands:",
    "0: packet_count:9 byte_count:480",
    "meter:260 flow_count:2 packet_in_count:10 byte_in_count:600 duration:1.5s bands:",
    "0: packet_count:7 byte_count:480",
    "meter:258 flow_count:1 packet_in_count:10 byte_in_count:600 duration:1.5s bands:",
    "0: packet_count:5 byte_count:480",
    "meter:1035 flow_count:1 packet_in_count:10 byte_in_count:600 duration:1.5s bands:",
    "0: packet_count:4 byte_count:480",
    "meter:1036 flow_count:1 packet_in_count:10 byte_in_count:600 duration:1.5s bands:",
    "0: packet_count:2 byte_count:480",
)
METER_DROPS = {
    "PacketInMeterNetworkPolicy": 8,
    "PacketInMeterDNSInterception": 5,
    "PacketInMeterUnservedPort": 7,
    "PacketInMeterDNSInterceptionOfPod": 6,
}


class Tables:
    """Stands where ovs-ofctl stands."""

    def __init__(self, *lines: str) -> None:
        self._lines = lines

    async def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        assert (command, arguments) in {("dump-tables", ()), ("meter-stats", ())}
        if not self._lines:
            raise Unavailable("OVS")
        for line in METERS if command == "meter-stats" else self._lines:
            yield line


def view(*lines: str) -> AgentView:
    facts = Facts()
    facts.put(PodInterface("web-0-1a2b3c", "c" * 64, "shop", "web-0", "aa:0:0:0:0:1", ("10.1.0.4",), 9, "u"))
    rules = [
        NetworkPolicyRule(
            direction=direction, from_=NetworkPolicyPeer(), to=NetworkPolicyPeer(), enable_logging=False
        )
        for direction in ("In", "In", "Out")
    ]
    facts.put(SentPolicy(NetworkPolicy(metadata=ObjectMetadata(name="p"), rules=tuple(rules))))
    config = AgentConfig(feature_gates={"AntreaProxy": True})
    in_effect = InEffect("", config, accept_agent(config))
    tables = {"Classifier": 0, "Output": 7}
    return AgentView(lambda: in_effect, facts, Tables(*lines), tables, parts=agent_parts(facts, config))


class Failing(Part):
    """A part whose metrics raise."""

    error: Exception | None = ValueError("no number")

    def metrics(self) -> str:
        if self.error:
            raise self.error
        return ""


def unread(text: str) -> dict[str, float]:
    """How often sources of metrics could not be read, by their names."""
    return {
        sample.labels["source"]: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if family.name == "antrea_agent_metric_failure_count"
    }


async def answer(value: str | None) -> str | None:
    return value


FAMILIES = ({"ip_family": "v4"}, {"ip_family": "v6"})
OF_SERVICES = {
    "antrea_proxy_earlier_connection_count": [({}, 0)],
    "antrea_proxy_earlier_connection_limit": [({}, 10000)],
    "antrea_proxy_group_count": [({}, 0)],
    "antrea_proxy_group_limit": [({}, 1048580)],
    "antrea_proxy_remembered_client_count": [({}, 0)],
    "antrea_proxy_remembered_client_limit": [({}, 20000)],
    "antrea_proxy_sync_proxy_rules_duration_seconds": [(one, 0) for one in FAMILIES for _ in range(2)],
    "antrea_proxy_total_endpoints_installed": [(one, 0) for one in FAMILIES],
    "antrea_proxy_total_endpoints_updates": [(one, 0) for one in FAMILIES],
    "antrea_proxy_total_services_installed": [(one, 0) for one in FAMILIES],
    "antrea_proxy_total_services_updates": [(one, 0) for one in FAMILIES],
}

OF_NAMES = {
    "antrea_agent_fqdn_answer_dropped_count": [],
    "antrea_agent_fqdn_answer_ignored_count": [({}, 0)],
    "antrea_agent_fqdn_cache_eviction_count": [],
    "antrea_agent_fqdn_cache_fill_ratio": [({"limit": "selector_limit"}, 0), ({"limit": "total_limit"}, 0)],
    "antrea_agent_fqdn_cache_size": [({}, 0)],
}


async def test_agent_metrics_count_pods_flows_and_operations() -> None:
    seen = view("table 0:", "active=3, lookup=0, matched=0", "table 1:", "active=2, lookup=0, matched=0",
                "tables 2...253: ditto")  # fmt: skip
    assert await seen.operations.measured({"add", "delete"}, answer(None)) is None
    assert await seen.operations.measured({"add"}, answer("refused")) == "refused"
    families = {family.name: family for family in text_string_to_metric_families(await agent_metrics(seen))}
    values = {
        name: [(dict(s.labels), s.value) for s in family.samples if "le" not in s.labels]
        for name, family in families.items()
        if "latency" not in name
    }
    assert values == {
        **OF_SERVICES,
        **OF_NAMES,
        "antrea_agent_local_pod_count": [({}, 1)],
        "antrea_agent_networkpolicy_count": [({}, 1)],
        "antrea_agent_ingress_networkpolicy_rule_count": [({}, 2)],
        "antrea_agent_egress_networkpolicy_rule_count": [({}, 1)],
        "antrea_agent_pod_start_count": [
            ({"result": result}, 0) for result in ("immediate", "waited", "cached", "timeout")
        ],
        "antrea_agent_pod_start_wait_seconds": [({}, 0), ({}, 0)],
        "antrea_agent_unenforced_rule_count": [({}, 0)],
        "antrea_agent_audited_rule_count": [({}, 0)],
        "antrea_agent_audit_log_lost_count": [({}, 0)],
        "antrea_agent_ovs_total_flow_count": [({}, 5)],
        "antrea_agent_ovs_flow_count": [
            ({"table_id": "0", "table_name": "Classifier"}, 3),
            ({"table_id": "7", "table_name": "Output"}, 2),
        ],
        "antrea_agent_ovs_meter_packet_dropped_count": [
            ({"meter_id": name}, n) for name, n in METER_DROPS.items()
        ],
        "antrea_agent_ovs_flow_ops_count": [
            ({"operation": "add"}, 1),
            ({"operation": "modify"}, 0),
            ({"operation": "delete"}, 1),
        ],
        "antrea_agent_ovs_flow_ops_error_count": [
            ({"operation": "add"}, 1),
            ({"operation": "modify"}, 0),
            ({"operation": "delete"}, 0),
        ],
    }
    latency = families["antrea_agent_ovs_flow_ops_latency_milliseconds"]
    adds = [s for s in latency.samples if s.labels["operation"] == "add"]
    assert [s.value for s in adds if s.name.endswith("_count")] == [2]
    assert adds[len(adds) - 3].labels["le"] == "+Inf"


async def test_agent_metrics_tell_what_the_switch_dropped_for_it_as_long_as_it_says_so() -> None:
    seen = view()

    async def known() -> int:
        return 14736

    async def unknown() -> int:
        raise Unavailable("OVS")

    seen.overflow = known
    assert "antrea_agent_packet_in_overflow_count 14736\n" in await agent_metrics(seen)
    seen.overflow = unknown
    text = await agent_metrics(seen)
    assert "antrea_agent_packet_in_overflow_count" not in text
    assert unread(text)["packet overflow"] == 1


async def test_agent_metrics_tell_how_many_connections_are_tracked_and_may_be() -> None:
    seen = view()

    async def known() -> Usage:
        return Usage(17, 262144)

    async def unknown() -> Usage:
        raise Unavailable("OVS")

    seen.connections = known
    text = await agent_metrics(seen)
    assert "antrea_agent_conntrack_total_connection_count 17\n" in text
    assert "antrea_agent_conntrack_max_connection_count 262144\n" in text
    seen.connections = unknown
    text = await agent_metrics(seen)
    assert "conntrack_" not in text
    assert unread(text)["conntrack"] == 1


def test_the_kernels_table_is_read_where_the_datapath_has_none_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="nf_conntrack_count"):
        kernel_usage(tmp_path)
    (tmp_path / "nf_conntrack_count").write_text("3\n")
    (tmp_path / "nf_conntrack_max").write_text("65536\n")
    assert kernel_usage(tmp_path) == Usage(3, 65536)


async def test_agent_metrics_count_what_could_not_be_read() -> None:
    seen, fails = view(), Failing()
    seen.parts.append(fails)
    assert unread(await agent_metrics(seen)) == {"Failing": 1, "flows": 1, "meters": 1}
    fails.error = None
    assert unread(await agent_metrics(seen)) == {"Failing": 1, "flows": 2, "meters": 2}


async def test_agent_metrics_leave_out_flows_while_the_switch_is_away() -> None:
    text = await agent_metrics(view())
    assert "ovs_flow_count" not in text
    assert "antrea_agent_local_pod_count 1\n" in text


async def test_an_operation_whose_outcome_is_unknown_is_an_error() -> None:
    seen = view()

    async def lost() -> None:
        raise Unavailable("OVS")

    with pytest.raises(Unavailable):
        await seen.operations.measured({"delete"}, lost())
    assert 'antrea_agent_ovs_flow_ops_error_count{operation="delete"} 1\n' in await agent_metrics(seen)


async def test_agent_metrics_count_starts_and_rules_that_are_not_enforced() -> None:
    seen = view()
    for result, seconds in (("immediate", 0.0), ("waited", 0.05), ("immediate", 0.0), ("timeout", 2.0004)):
        seen.starts.note(result, seconds)
    seen.facts.put(
        PolicyRule("r", "In", ("g",), NetworkPolicyPeer(), (), "Drop", RuleOrder(250, 5, 0, "", "u"))
    )
    text = await agent_metrics(seen)
    assert [
        line for line in text.splitlines() if line.startswith(("antrea_agent_pod", "antrea_agent_unenf"))
    ] == [
        'antrea_agent_pod_start_count{result="immediate"} 2',
        'antrea_agent_pod_start_count{result="waited"} 1',
        'antrea_agent_pod_start_count{result="cached"} 0',
        'antrea_agent_pod_start_count{result="timeout"} 1',
        *(f'antrea_agent_pod_start_wait_seconds_bucket{{le="{le}"}} 2' for le in ("0.01", "0.025")),
        *(
            f'antrea_agent_pod_start_wait_seconds_bucket{{le="{le}"}} 3'
            for le in ("0.05", "0.1", "0.25", "0.5", "1", "2")
        ),
        *(f'antrea_agent_pod_start_wait_seconds_bucket{{le="{le}"}} 4' for le in ("5", "30", "+Inf")),
        "antrea_agent_pod_start_wait_seconds_sum 2.05",
        "antrea_agent_pod_start_wait_seconds_count 4",
        "antrea_agent_unenforced_rule_count 1",
    ]
