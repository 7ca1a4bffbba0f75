"""An agent reads the files that an earlier version left on its Node: tests/golden/agent_state was written by the code of 2026-11-24."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from antrea.agent.switch.traffic_statistics import TrafficStatistics
from antrea.apis import controlplane as cp
from antrea.apis.meta import ObjectMetadata
from antrea.config.agent import AgentConfig
from antrea.engine import Facts, Record
from antrea.facts.pod import LocalPod
from antrea.features.framework.config_validation import accept_agent
from antrea.features.framework.traffic import SeenCounters
from antrea.features.network_policy.agent.connection_flush import Connection, FlushedConnection
from antrea.features.network_policy.agent.received import (
    KINDS,
    SentAddressGroup,
    SentAddressMember,
    SentAppliedGroup,
    SentAppliedMember,
    SentPolicy,
)
from antrea.features.network_policy.agent_part.connection_flush import ConnectionFlusher
from antrea.outside.controlplane.state_cache import CachedState, StateCacheFile
from antrea.outside.disk.id_journal import FileJournal
from antrea.outside.disk.ipam import Ipam
from antrea.outside.reload.configuration import Configuration

if TYPE_CHECKING:
    from antrea.facts.fact import Fact

WRITTEN = Path(__file__).parents[2] / "golden/agent_state"
UNUSED: Any = None


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """A copy, since an agent goes on writing to its files."""
    return Path(shutil.copytree(WRITTEN, tmp_path / "state"))


def test_numbers_of_flows_keep_their_owners(left: Path) -> None:
    journal = FileJournal(left / "ids")
    assert set(journal.read()) == {Record("conjunction", f"policy-{n}/é", n) for n in (1, 2, 70)}
    journal.close()


def test_a_connection_that_a_policy_has_cut_stays_cut(left: Path) -> None:
    facts = Facts()
    ConnectionFlusher(facts, "gw", UNUSED, UNUSED, left / "severed")
    cut = Connection("TCP", "10.244.1.5", "2001:db8::1", 4000, 80)
    assert set(facts.all(FlushedConnection)) == {FlushedConnection("shop/web", cut)}


def test_what_was_counted_is_not_reported_twice(left: Path) -> None:
    statistics = TrafficStatistics(
        Facts(), UNUSED, UNUSED, (), node="n1", tables={}, counters=UNUSED, keep=left / "policy-counters"
    )
    statistics.read()
    assert statistics._flows == {"table=1,ip": SeenCounters(7, 700, "p")}


def test_policies_of_the_controller_are_enforced_before_it_answers(left: Path) -> None:
    rule = cp.NetworkPolicyRule(
        direction="In",
        from_=cp.NetworkPolicyPeer(address_groups=("g",)),
        to=cp.NetworkPolicyPeer(),
        services=(),
        enable_logging=False,
        name="r",
    )
    origin = cp.NetworkPolicyReference(type="K8sNetworkPolicy", namespace="shop", name="p", uid="p")
    policy = cp.NetworkPolicy(
        metadata=ObjectMetadata(name="p", uid="p"),
        rules=(rule,),
        applied_to_groups=("a",),
        source_ref=origin,
    )
    pod = cp.GroupMember(pod=cp.PodReference(namespace="shop", name="web"), ips=(bytes([10, 244, 1, 5]),))
    rows: list[Fact] = [
        SentPolicy(policy),
        SentAddressGroup("g"),
        SentAddressMember("g", pod),
        SentAppliedGroup("a"),
        SentAppliedMember("a", pod),
        LocalPod("shop", "web", "u1"),
    ]
    assert StateCacheFile(left / "last-word", [*KINDS, LocalPod]).read() == CachedState(rows, ("u1",))


def test_the_last_good_configuration_counts(left: Path) -> None:
    given = left / "given"
    given.write_text("defaultMTU: 1400\n")
    os.utime(left / "antrea-agent.conf.good", (4e9, 4e9))
    found = Configuration(AgentConfig, accept_agent, given, left / "antrea-agent.conf.good").now.config
    assert found.default_mtu == 1300


async def test_an_address_of_a_pod_is_not_given_to_another(left: Path) -> None:
    ipam = Ipam(("10.244.1.0/24",), left / "networks")
    assert await ipam.held("c1", "eth0") == ("10.244.1.2",)
    assert (await ipam.allocate("c2", "eth0")).ips == ("10.244.1.3",)
