"""Exceptions from blocks: what is left of them, at what price, and how many of them are enforced."""

from __future__ import annotations

import itertools
import sys
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from policy_world import applied, block, engine_of, interface, member, named, native, peer, policy, port, rule

from antrea.apis import controlplane as cp
from antrea.apis.policy_report import PolicyReport
from antrea.facts.node import ThisNode
from antrea.features.grouping.member import packed
from antrea.features.network_policy.agent.match import networks
from antrea.features.network_policy.hole import EXCESS, MAX_EXCEPTIONS, MAX_NETWORKS
from antrea.openflow.flow import Flow

if TYPE_CHECKING:
    from antrea.engine import Engine

V4 = ThisNode("n1", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",))
ROWS = (V4, interface("web", 7, "10.10.0.7"), *applied("g", member("web")))
CLOSED = "table=AntreaPolicyIngressRule,priority=64989,reg1=0x7 actions=drop"
ISOLATED = "table=IngressDefaultRule,priority=200,reg1=0x7 actions=drop"
NEAR = "10.0.0.0/26"


def without(whole: str, *holes: str) -> list[str]:
    """One exception after the other."""
    left: list[IPv4Network | IPv6Network] = [ip_network(whole)]
    for hole in map(ip_network, holes):
        left = [part for one in left for part in _parts(one, hole)]
    return [str(one) for one in sorted(left, key=lambda one: int(one.network_address))]


def _parts(
    one: IPv4Network | IPv6Network, hole: IPv4Network | IPv6Network
) -> list[IPv4Network | IPv6Network]:
    if one.version != hole.version or not one.overlaps(hole):
        return [one]
    if one.prefixlen >= hole.prefixlen:
        return []
    return list(one.address_exclude(hole))  # type: ignore[arg-type]


HOLES = st.one_of(
    st.builds(lambda n, bits: str(ip_network((0x0A000000 + n, bits), strict=False)), st.integers(0, 95), st.integers(24, 32)),
    st.builds(lambda n, bits: str(ip_network((0xFD << 120 | n, bits), strict=False)), st.integers(0, 63), st.integers(120, 128)),
)  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from([NEAR, "10.0.0.0/24", "0.0.0.0/0", "fd00::/122", "::/0"]), st.lists(HOLES, max_size=6))
def test_what_is_left_is_as_if_one_exception_were_taken_out_after_the_other(
    whole: str, holes: list[str]
) -> None:
    assert [str(one) for one in networks(block(whole, *holes))] == without(whole, *holes)


def scattered(count: int) -> tuple[str, ...]:
    """Addresses with as much between them as there can be, and in no order."""
    step = (1 << 32) // count
    numbers = sorted(range(count), key=lambda number: number * 7919 % count)
    return tuple(str(IPv4Network(number * step + 1)) for number in numbers)


def holes(count: int) -> cp.IPBlock:
    return block("0.0.0.0/0", *scattered(count))


def calls(count: int) -> int:
    """How many functions are called for that many exceptions."""
    made = itertools.count()
    sys.setprofile(lambda *_: next(made) and None)
    try:
        parts = sum(1 for _ in networks(holes(count)))
    finally:
        sys.setprofile(None)
    assert parts > count
    return next(made)


def test_thousands_of_exceptions_take_no_square_of_their_number() -> None:
    """Four times as many took sixteen times as long: 272 s. Now that many take 1 s."""
    assert calls(MAX_EXCEPTIONS) < 6 * calls(MAX_EXCEPTIONS // 4)


def flows(engine: Engine) -> list[str]:
    return named(entry for entry in engine.standing().values() if isinstance(entry, Flow))


def failure(engine: Engine) -> str:
    (found,) = (entry.failure for entry in engine.standing().values() if isinstance(entry, PolicyReport))
    return found


@pytest.mark.parametrize("count", [MAX_NETWORKS // 16, MAX_EXCEPTIONS + 1])
@pytest.mark.parametrize(("action", "closes"), [("Drop", True), ("Allow", False)])
def test_a_policy_of_antrea_with_more_is_closed_and_says_so(count: int, action: str, closes: bool) -> None:
    sound = rule(
        "In", peer(blocks=[block("192.0.2.0/24", "192.0.2.1/32")]), port(80), action="Allow", name="a"
    )
    facts, engine = engine_of(*ROWS, native("p", "g", sound))
    engine.plan()
    before = flows(engine)
    assert failure(engine) == ""
    odd = rule("In", peer(blocks=[holes(count)]), port(81), action=action, name="b", priority=1)
    facts.put(native("p", "g", sound, odd))
    engine.plan()
    assert {*flows(engine)} - {*before} == ({CLOSED} if closes else set())
    assert failure(engine) == f"b: {EXCESS}"


def test_a_policy_of_kubernetes_with_more_allows_nothing_by_it() -> None:
    facts, engine = engine_of(*ROWS, policy("p", "g", rule("In", peer())))
    engine.plan()
    before = flows(engine)
    assert ISOLATED in before
    facts.put(policy("p", "g", rule("In", peer(blocks=[holes(MAX_EXCEPTIONS + 1)]))))
    engine.plan()
    assert flows(engine) == before


def test_the_bound_is_for_all_rules_of_a_policy_together() -> None:
    part = [holes(MAX_EXCEPTIONS // 8) for _ in range(8)]
    many = [
        rule("In", peer(blocks=[one]), port(n), action="Drop", name=f"r{n}") for n, one in enumerate(part, 1)
    ]
    _, engine = engine_of(*ROWS, native("p", "g", *many))
    engine.plan()
    first, *others = failure(engine).split("; ")
    assert (first, len(others)) == (f"r2: {EXCESS}", 6)
    assert CLOSED in flows(engine)


def test_addresses_outside_of_a_block_and_of_the_other_family_are_no_holes() -> None:
    found = cp.IPBlock(
        cidr=cp.IPNet(ip=packed("10.0.0.0"), prefix_length=120),
        except_=(
            cp.IPNet(ip=packed("::"), prefix_length=0),
            cp.IPNet(ip=packed("10.0.1.0"), prefix_length=24),
        ),
    )
    assert [str(one) for one in networks(found)] == ["10.0.0.0/24"]
