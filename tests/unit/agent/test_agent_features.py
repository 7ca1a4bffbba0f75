"""What gates leave on, and what is waited for before something goes or is replaced."""

from __future__ import annotations

from antrea.agent.feature_set import FIRST_ROUND, active, first_lists, pipeline_of, sweeps
from antrea.config.agent import AgentConfig
from antrea.facts.egress import Egress, EgressPod
from antrea.facts.member import PoolSelector
from antrea.facts.node import LocalAddress, ThisNode
from antrea.openflow.cookie import Category

NODE = ThisNode("n1", ("10.10.0.0/24", "fd00:10::/80"), ("192.0.2.1", "fd00:2::1"), ("192.0.2.1",))


def test_without_the_gate_there_is_no_table_and_no_sweep_waits_for_an_egress() -> None:
    assert "EgressMark" not in pipeline_of(active(()), AgentConfig(), NODE).ids
    assert "EgressMark" in pipeline_of(active({"Egress"}), AgentConfig(), NODE).ids
    assert Egress not in sweeps(active(()))[Category.EGRESS]
    assert {Egress, EgressPod, LocalAddress} <= {*sweeps(active({"Egress"}))[Category.EGRESS]}


def test_the_first_replay_of_a_switch_whose_datapath_has_flows_waits_for_egresses() -> None:
    flows = {Egress, EgressPod, PoolSelector}
    assert flows <= {*first_lists(active({"Egress"}), FIRST_ROUND + 1)}
    assert not flows & {
        *first_lists(active({"Egress"}), FIRST_ROUND),
        *first_lists(active(()), FIRST_ROUND + 1),
    }
