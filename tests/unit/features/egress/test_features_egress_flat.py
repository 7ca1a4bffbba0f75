"""What the status of one Egress costs an agent that knows many: the same, however many there are."""

from __future__ import annotations

import msgspec
from call_count import cost

from antrea.config.agent import AgentConfig
from antrea.engine import Engine, Facts
from antrea.facts.egress import Egress, EgressOwner
from antrea.facts.member import AgentNode, GossipMember, PoolSelector, Quorum
from antrea.facts.node import ThisNode
from antrea.features.egress.agent import owner
from antrea.features.external_ip_pool.agent import FEATURE as POOL_MEMBERS

POOL = PoolSelector(
    "p", (), ranges=((4, int.from_bytes(bytes((10, 0, 0, 0))), int.from_bytes(bytes((10, 0, 255, 255)))),)
)


def engine_with(count: int) -> Engine:
    facts = Facts()
    engine = Engine(facts, (*owner.FEATURE.units, *POOL_MEMBERS.units))
    facts.put(ThisNode("n0", ("10.10.0.0/24",), ("192.0.2.1",), ("192.0.2.1",)))
    facts.put(AgentConfig())
    facts.put(Quorum(has=True, alive=3, of=3))
    for number in range(3):
        facts.put(AgentNode(f"n{number}", (), ()))
        facts.put(GossipMember(f"n{number}", alive=True))
    facts.put(POOL)
    for number in range(count):
        facts.put(Egress(f"e{number}", f"u{number}", f"10.0.{number >> 8}.{number & 255}", "p"))
    engine.plan()
    assert len(facts.all(EgressOwner)) == count
    return engine


def status_write(engine: Engine) -> int:
    """The second one, so that nothing is done for the first time."""
    costs = []
    found = engine.facts.get(Egress, "e7")
    assert found is not None
    for changes in ({"node": "n1", "held": "10.0.0.7"}, {"node": "n2"}):
        found = msgspec.structs.replace(found, **changes)

        def write(row: Egress = found) -> None:
            engine.facts.put(row)
            engine.plan()

        costs.append(cost(write))
    return costs[-1]


def test_a_status_write_of_one_egress_places_no_other() -> None:
    small, large = (status_write(engine_with(count)) for count in (20, 200))
    assert large == small


def test_an_egress_that_needs_another_node_is_placed_at_its_request() -> None:
    engine = engine_with(20)
    before = engine.facts.get(EgressOwner, "e7")
    assert before is not None
    other = next(f"n{number}" for number in range(3) if f"n{number}" != before.node)
    found = engine.facts.get(Egress, "e7")
    assert found is not None
    engine.facts.put(msgspec.structs.replace(found, preferred=(other,)))
    engine.plan()
    assert engine.facts.get(EgressOwner, "e7") == EgressOwner("e7", other)
