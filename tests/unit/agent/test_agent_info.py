"""What the agent says of itself on /agentinfo and in its AntreaAgentInfo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from agent_context import agent_parts

from antrea.agent.api.agent_info import agent_info, changes, condition_states, conditions, flow_counts
from antrea.agent.api.view import AgentView
from antrea.apis.controlplane import GroupMember, NetworkPolicy
from antrea.apis.crd.info import NetworkInfo, NetworkPolicyControllerInfo, OvsInfo
from antrea.apis.crd.part import ObjectReference
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent import AgentConfig
from antrea.config.effect import InEffect
from antrea.engine import Facts
from antrea.errors import Unavailable
from antrea.facts.node import ThisNode, Transport
from antrea.facts.ovs import PodInterface
from antrea.features.framework.agent_part import NotFound
from antrea.features.framework.config_validation import accept_agent
from antrea.features.network_policy.agent.received import (
    SentAddressGroup,
    SentAddressMember,
    SentAppliedGroup,
    SentPolicy,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# of OVS 3.1
TABLES = """table 0:
active=1, lookup=0, matched=0
table 1:
active=0, lookup=0, matched=0
table 2: ditto
table 3 ("Named"):
active=20, lookup=1, matched=0
table 4:
active=5, lookup=0, matched=0
tables 5...9: ditto
table 10:
active=0, lookup=0, matched=0
tables 11...253: ditto""".splitlines()


class Tables:
    """Stands where ovs-ofctl stands."""

    def __init__(self, *, away: bool = False) -> None:
        self.away = away

    async def lines(self, command: str, *arguments: str) -> AsyncIterator[str]:
        assert (command, arguments) == ("dump-tables", ())
        if self.away:
            raise Unavailable("OVS")
        for line in TABLES:
            yield line


@pytest.fixture
def view(monkeypatch: pytest.MonkeyPatch) -> AgentView:
    monkeypatch.setenv("POD_NAME", "antrea-agent-x")
    monkeypatch.setenv("POD_NAMESPACE", "kube-system")
    facts = Facts()
    facts.put(PodInterface("web-0-1a2b3c", "c" * 64, "shop", "web-0", "aa:0:0:0:0:1", ("10.1.0.4",), 9, "u"))
    facts.put(ThisNode("n1", ("10.1.0.0/24",), mtu=1450))
    facts.put(Transport("eth1", "br-phy", "aa:0:0:0:0:2", 1500, ("192.0.2.1/24",)))
    config = AgentConfig()
    return AgentView(
        lambda: InEffect("", config, accept_agent(config)),
        facts,
        Tables(),
        {"Classifier": 0, "SpoofGuard": 2, "Named": 3, "ConntrackState": 9, "Output": 200},
        ready={"kube": lambda: ""},
        conditions={"OpenflowConnectionUp": lambda: ""},
        ovs_version=lambda: "3.1.0",
        parts=agent_parts(facts),
    )


async def test_agent_info_counts_flows_as_the_switch_does_also_of_tables_that_it_prints_as_ditto(
    view: AgentView,
) -> None:
    assert await flow_counts(view) == {
        "Classifier": 1, "SpoofGuard": 0, "Named": 20, "ConntrackState": 5, "Output": 0,
    }  # fmt: skip


async def test_agent_info_is_whole(view: AgentView) -> None:
    info = await agent_info(view)
    assert info.pod_ref == ObjectReference(kind="Pod", namespace="kube-system", name="antrea-agent-x")
    assert info.node_ref == ObjectReference(kind="Node", name="n1")
    assert (info.node_subnets, info.local_pod_num, info.api_port) == (("10.1.0.0/24",), 1, 10350)
    assert info.ovs_info == OvsInfo("3.1.0", "br-int", await flow_counts(view))
    assert info.network_info == NetworkInfo("eth1", 1500, 1450, ("192.0.2.1/24",))
    assert [(c.type, c.status) for c in info.agent_conditions] == [
        ("AgentHealthy", "True"),
        ("OpenflowConnectionUp", "True"),
    ]


async def test_agent_info_counts_what_the_controller_sent_and_groups_by_themselves_not_by_members(
    view: AgentView,
) -> None:
    for name in ("p", "q", "r"):
        view.facts.put(SentPolicy(NetworkPolicy(metadata=ObjectMetadata(name=name))))
    for name in ("a", "b"):
        view.facts.put(SentAddressGroup(name))
    for address in (b"\x0a\x01\x00\x04", b"\x0a\x01\x00\x05", b"\x0a\x01\x00\x06"):
        view.facts.put(SentAddressMember("a", GroupMember(ips=(address,))))
    view.facts.put(SentAppliedGroup("a"))
    info = await agent_info(view)
    assert info.network_policy_controller_info == NetworkPolicyControllerInfo(3, 2, 1)


async def test_agent_info_is_told_also_while_the_switch_is_away(view: AgentView) -> None:
    view.ofctl = Tables(away=True)
    view.conditions = {"OpenflowConnectionUp": lambda: "disconnected"}
    info = await agent_info(view)
    assert info.ovs_info == OvsInfo("3.1.0", "br-int")
    assert [(c.type, c.status, c.message) for c in info.agent_conditions][1:] == [
        ("OpenflowConnectionUp", "False", "disconnected")
    ]


@pytest.mark.parametrize("down", ["OVSDBConnectionUp", "OpenflowConnectionUp"])
async def test_agent_info_does_not_wait_for_a_switch_that_answers_nothing(view: AgentView, down: str) -> None:
    view.conditions = {down: lambda: "no answer within 5 s"}
    assert (await agent_info(view)).ovs_info == OvsInfo("3.1.0", "br-int")


async def test_agent_info_needs_a_node(view: AgentView) -> None:
    view.facts = Facts()
    with pytest.raises(NotFound):
        await agent_info(view)


def test_agent_info_shortens_what_others_wrote_into_a_condition(view: AgentView) -> None:
    """kube-apiserver refuses an object of more than 1.5 MiB, and the Node would look dead."""
    view.conditions = {"OpenflowConnectionUp": lambda: "x" * 2_000_000}
    view.troubles = {"PodsUnreachable": lambda: "y" * 2_000_000}
    messages = [message for _, _, message in condition_states(view)]
    assert [len(message) for message in messages] == [0, 4096, 4096]
    assert messages[1].endswith("x...")


def test_agent_info_names_what_fails_and_what_was_refused(view: AgentView) -> None:
    assert condition_states(view) == [("AgentHealthy", "True", ""), ("OpenflowConnectionUp", "True", "")]
    view.ready = {"kube": lambda: "shutting down", "feeds": lambda: "silent"}
    rejected = msgspec.structs.replace(view.now, rejected="defaultMTU: many")
    view.in_effect = lambda: rejected
    assert condition_states(view) == [
        ("AgentHealthy", "False", "shutting down; silent"),
        ("OpenflowConnectionUp", "True", ""),
        ("ConfigRejected", "True", "defaultMTU: many"),
    ]
    view.troubles = {"PodsUnreachable": lambda: "no tunnel", "ServicesUnserved": str}
    assert condition_states(view)[2:] == [
        ("PodsUnreachable", "True", "no tunnel"),
        ("ConfigRejected", "True", "defaultMTU: many"),
    ]
    assert all(len(found.last_heartbeat_time) == len("2026-01-01T00:00:00Z") for found in conditions(view))


def test_a_merge_patch_makes_one_object_of_another() -> None:
    before = {"ovsInfo": {"version": "2", "flowTable": {"A": 1, "Gone": 2}}, "localPodNum": 3, "same": [1]}
    now = {"ovsInfo": {"version": "2", "flowTable": {"A": 5}}, "same": [1], "apiPort": 1}
    assert changes(before, now) == {
        "ovsInfo": {"flowTable": {"A": 5, "Gone": None}},
        "localPodNum": None,
        "apiPort": 1,
    }
