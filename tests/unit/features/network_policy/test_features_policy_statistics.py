"""What an agent reports of its rules is what the switch counted, whatever happens in between."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from counted_world import Switch, World, counted
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_world import (
    ANY,
    NODE,
    PIPELINE,
    applied,
    engine_of,
    interface,
    member,
    native,
    policy,
    port,
    rule,
)

from antrea.agent.switch.traffic_statistics import MAX_SHARES
from antrea.features.network_policy.agent.received import SentPolicy
from antrea.features.network_policy.agent.statistics import COUNTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.facts.fact import Fact

WEB = (interface("web", 7), *applied("web", member("web")))


def world_of(keep: Path, *rows: Fact) -> World:
    return World(keep, Switch(*engine_of(NODE, *rows), PIPELINE, COUNTED, "label|reg3"))


NEW, OLD, DENIED = r"\+new.*,ip$", r"-new.*,ip$", "reg3"


def test_connections_packets_and_bytes_are_those_of_the_rules_flows(tmp_path: Path) -> None:
    allow, deny = rule("In", ANY, port(80)), rule("Out", ANY, action="Drop", name="no")
    world = world_of(tmp_path / "kept", *WEB, policy("p", "web", allow), native("n", "web", deny))
    assert world.turn() == {}
    world.switch.count(NEW, 2, 60)
    world.switch.count(r"\+new.*,ipv6$", 1, 80)
    world.switch.count(OLD, 10, 100)
    world.switch.count(DENIED, 3, 50)
    wanted = {("p", ""): counted(13, 1200, 3), ("n", "no"): counted(3, 150, 3)}
    assert world.turn() == wanted
    # nothing new, nothing told
    assert world.turn() == wanted
    assert len(world.controller.told) == 1


def test_every_policy_that_states_a_rule_counts_it_from_when_it_is_there(tmp_path: Path) -> None:
    same = rule("In", ANY, port(80))
    # twice in one policy is one rule of it
    world = world_of(tmp_path / "kept", *WEB, policy("p", "web", same, same), policy("q", "web", same))
    world.turn()
    world.switch.count(NEW, 1)
    assert world.turn() == {("p", ""): counted(1, 100, 1), ("q", ""): counted(1, 100, 1)}
    world.switch.facts.put(policy("r", "web", same))
    world.switch.facts.drop(SentPolicy, "q")
    world.switch.follow()
    world.switch.count(OLD, 1)
    assert world.turn() == {
        ("p", ""): counted(2, 200, 1), ("q", ""): counted(1, 100, 1), ("r", ""): counted(1, 100, 0),
    }  # fmt: skip


def test_rules_of_an_antrea_policy_count_by_name(tmp_path: Path) -> None:
    rules = [
        rule("In", ANY, port(n), action="Allow", name=name, priority=n)
        for n, name in ((1, "a"), (2, "b"), (3, "a"))
    ]
    world = world_of(tmp_path / "kept", *WEB, native("n", "web", *rules))
    world.turn()
    for number, packets in ((2, 1), (3, 10), (4, 100)):
        world.switch.count(rf"\+new,ct_label={number:#x}/0xffffffff,ip$", packets, 1)
    assert world.turn() == {("n", "a"): counted(101, 101, 101), ("n", "b"): counted(10, 10, 10)}


def test_a_number_that_goes_to_another_rule_takes_no_counts_along(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", *WEB, policy("p", "web", rule("In", ANY, port(80))))
    world.turn()
    world.switch.count(NEW, 5)
    world.turn()
    flows = set(world.switch.counts)
    world.switch.facts.drop(SentPolicy, "p")
    world.switch.follow()
    assert not world.switch.counts
    world.switch.facts.put(policy("q", "web", rule("In", ANY, port(81))))
    world.switch.follow()
    assert set(world.switch.counts) == flows
    world.switch.count(NEW, 7)
    assert world.turn() == {("p", ""): counted(5, 500, 5), ("q", ""): counted(7, 700, 7)}


def test_an_agent_without_a_file_tells_nothing_of_before(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", *WEB, policy("p", "web", rule("In", ANY)))
    world.switch.count(NEW, 5)
    world.turn()
    world.switch.count(NEW, 1)
    assert world.turn() == {("p", ""): counted(1, 100, 1)}
    (tmp_path / "kept").write_bytes(b"no file of ours")
    world.new_agent()
    world.switch.count(NEW, 1)
    assert world.turn() == {("p", ""): counted(1, 100, 1)}


def test_no_octet_of_the_file_of_counters_can_end_a_start_or_be_reported(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", *WEB, policy("p", "web", rule("In", ANY)))
    world.turn()
    world.controller.away = True
    world.switch.count(NEW, 5)
    world.turn()
    assert world.new_agent().account.sending
    whole = (tmp_path / "kept").read_bytes()
    for at in range(len(whole)):
        for octet in {0, 0xC1, 0xFF, whole[at] ^ 1} - {whole[at]}:
            (tmp_path / "kept").write_bytes(whole[:at] + bytes((octet,)) + whole[at + 1 :])
            assert world.new_agent().account.sending == {}
    assert (tmp_path / "kept.damaged").exists()


def test_what_is_counted_before_policies_are_known_is_told_when_they_are(tmp_path: Path) -> None:
    """As at the start of an agent: flows stand before anybody has said whose they are."""
    known = policy("p", "web", rule("In", ANY))
    world = world_of(tmp_path / "kept", *WEB, known)
    world.turn()
    facts = world.switch.facts
    world.switch.count(NEW, 1)
    world.turn()
    for pause in (1, 2):
        world.switch.facts = engine_of(NODE, *WEB)[0]
        world.new_agent()
        world.switch.count(NEW, pause)
        world.turn()
    world.switch.facts = facts
    world.new_agent()
    assert world.turn() == {("p", ""): counted(4, 400, 4)}


def test_what_is_owed_outlives_the_agent(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", *WEB, policy("p", "web", rule("In", ANY)))
    world.turn()
    world.controller.away = True
    world.switch.count(NEW, 2)
    assert world.turn() == {}
    world.controller.away = False
    world.new_agent()
    assert world.turn() == {("p", ""): counted(2, 200, 2)}


def test_counters_that_fall_back_are_a_new_start(tmp_path: Path) -> None:
    """As those of a switch that was started anew, or of a rule that was deleted and came again."""
    world = world_of(tmp_path / "kept", *WEB, policy("p", "web", rule("In", ANY)))
    world.turn()
    world.switch.count(NEW, 5)
    world.turn()
    world.switch.counts = dict.fromkeys(world.switch.counts, (0, 0))
    world.switch.count(NEW, 3)
    assert world.turn() == {("p", ""): counted(8, 800, 8)}


def test_many_policies_are_told_in_several_reports(tmp_path: Path) -> None:
    same = rule("In", ANY)
    policies = [policy(f"p{number}", "web", same) for number in range(MAX_SHARES + 10)]
    world = world_of(tmp_path / "kept", *WEB, *policies)
    world.turn()
    world.switch.count(NEW, 1)
    assert world.turn() == {(one.key, ""): counted(1, 100, 1) for one in policies}
    assert [len(one.network_policies) for one in world.controller.told] == [MAX_SHARES, 10]


def test_what_is_owed_for_policies_that_are_gone_does_not_pile_up(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", *WEB)
    world.turn()
    world.controller.away = True
    for number in range(5):
        world.switch.facts.put(policy(f"p{number}", "web", rule("In", ANY, port(80 + number))))
        world.switch.follow()
        world.switch.count(NEW, 1)
        world.turn()
        world.switch.facts.drop(SentPolicy, f"p{number}")
        world.switch.follow()
    world.turn()
    assert world.agent.account.owed == {}


class Counted:
    """What a flow's reports must add up to, by the rules of the game alone."""

    def __init__(self) -> None:
        self.all = self.now = self.seen = 0
        """Packets told or to be told; on the flow; on the flow when it was looked at last."""

    def look(self) -> None:
        self.all += self.now - self.seen if self.now >= self.seen else self.now
        self.seen = self.now


STEPS = st.one_of(
    st.tuples(st.just("count"), st.sampled_from((NEW, OLD, DENIED)), st.integers(1, 5)),
    st.sampled_from(
        [("turn",), ("agent restarts",), ("switch restarts",), ("controller comes and goes",), ("replay",)]
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_reports_add_up_to_what_the_switch_counted(steps: Iterable[tuple[Any, ...]]) -> None:
    with TemporaryDirectory() as directory:
        allow, deny = rule("In", ANY), rule("Out", ANY, action="Drop", name="no")
        world = world_of(Path(directory, "kept"), *WEB, policy("p", "web", allow), native("n", "web", deny))
        world.turn()
        flows = {pattern: Counted() for pattern in (NEW, OLD, DENIED)}
        for step, *more in (*steps, ("turn",)):
            if step == "count":
                world.switch.count(*more)
                flows[more[0]].now += more[1]
            elif step == "agent restarts":
                world.new_agent()
            elif step == "switch restarts":
                world.switch.counts = dict.fromkeys(world.switch.counts, (0, 0))
                for one in flows.values():
                    one.now = 0
            elif step == "replay":
                world.switch.follow()
            elif step == "controller comes and goes":
                world.controller.away = not world.controller.away
            else:
                world.turn()
                for one in flows.values():
                    one.look()
        world.controller.away = False
        told = world.turn()
        new, old, denied = (flows[pattern].all for pattern in (NEW, OLD, DENIED))
        wanted = {
            ("p", ""): counted(new + old, 100 * (new + old), new),
            ("n", "no"): counted(denied, 100 * denied, denied),
        }
        assert told == {key: found for key, found in wanted.items() if found.packets}


def test_while_the_switch_is_away_nothing_is_lost_or_told(tmp_path: Path) -> None:
    world = world_of(tmp_path / "kept", *WEB, policy("p", "web", rule("In", ANY)))
    world.turn()
    world.switch.count(NEW, 1)
    world.switch.away = True
    assert world.turn() == {}
    world.switch.away = False
    assert world.turn() == {("p", ""): counted(1, 100, 1)}
