"""Which blocks of ports an Egress gives its Pods, as Pods and Egresses come and go, and what its status says of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from antrea.apis.crd.egress import Egress, EgressStatus, PortBlock
from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.facts.cluster import Namespace, Pod
from antrea.facts.egress import EgressRow, FreeBlock
from antrea.facts.external_ip import FencedLeadership
from antrea.features.egress.controller.feature import egress_row
from antrea.features.egress.controller.port_block import MANAGER, QuarantineBlock
from antrea.features.egress.port_block import BLOCKS, OTHER_PORTS, Block, allocate, blocks_of

SURVIVE, RESET = {"egress.antrea.io/survive": "ports"}, {"egress.antrea.io/lost-connections": "reset"}
EACH = Condition(
    "ConnectionsSurvive", "True", reason="PortBlocks", message="each Pod has a block of 512 ports"
)


def egress(
    name: str = "web", since: int = 1, ip: str = "203.0.113.1", *, status: Any = None, **annotations: Any
) -> EgressRow:
    found = {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": f"2026-01-0{since}T00:00:00Z",
            "annotations": annotations or SURVIVE,
        },
        "spec": {"appliedTo": {"podSelector": {"matchLabels": {"app": "web"}}}, "egressIP": ip},
        "status": status or {},
    }
    return egress_row(msgspec.convert(found, Egress))


def pod(name: str, *ips: str, host: bool = False) -> Pod:
    return Pod("shop", name, labels="shop/app=web", node="n1", ips=ips, host_network=host)


class Controller:
    """The controller's units over facts; it leads. What it writes becomes the status of the Egress, as the API server does."""

    def __init__(self, *rows: Any) -> None:
        self.facts = Facts()
        self.engine = Engine(self.facts, [unit for feature in FEATURES for unit in feature.units])
        self.put(FencedLeadership(), Namespace("shop"), *rows)

    def put(self, *rows: Any) -> list[QuarantineBlock]:
        """Return the quarantines that begin."""
        for row in rows:
            self.facts.put(row)
        return self.pass_on()

    def drop(self, name: str) -> list[QuarantineBlock]:
        self.facts.drop(Pod, f"shop/{name}")
        return self.pass_on()

    def pass_on(self) -> list[QuarantineBlock]:
        return [act for act in self.engine.plan().acts if isinstance(act, QuarantineBlock)]

    def status(self, name: str = "web") -> Any:
        """The status that it writes, as JSON."""
        (entry,) = (
            entry
            for entry in self.engine.standing().values()
            if isinstance(entry, Status) and (entry.manager, entry.path.rpartition("/")[2]) == (MANAGER, name)
        )
        assert entry.items
        assert entry.items.known == tuple(dict(item)["pod"] for item in entry.items.items)
        blocks = msgspec.to_builtins([dict(item) for item in entry.items.items])
        return {"portBlocks": blocks, "conditions": msgspec.to_builtins(list(entry.conditions))}

    def blocks(self, name: str = "web") -> dict[str, Block]:
        return {block.pod: block for block in blocks_of(msgspec.convert(self.status(name), EgressStatus))}

    def condition(self, name: str = "web") -> Condition:
        return msgspec.convert(self.status(name)["conditions"][0], Condition)


def test_each_pod_has_a_block_of_its_own_which_it_keeps() -> None:
    controller = Controller(egress(), pod("a"), pod("b", "10.0.0.2", "fd00::2"), pod("h", host=True))
    first = controller.blocks()
    assert set(first) == {"shop/a", "shop/b"}
    assert first["shop/a"].first != first["shop/b"].first
    assert first["shop/b"].ips == ("10.0.0.2", "fd00::2")
    assert controller.condition() == EACH
    # another leader reads what stands, whatever Pods there are now
    later = Controller(
        egress(status=controller.status()), *(pod(f"0-{number}") for number in range(60)), pod("b")
    )
    assert later.blocks()["shop/b"].first == first["shop/b"].first
    assert later.blocks()["shop/a"].released
    assert len({block.first for block in later.blocks().values()}) == 62


def test_a_block_is_free_again_some_time_after_its_pod_ended() -> None:
    controller = Controller(egress(), pod("a"))
    first = controller.blocks()["shop/a"].first
    controller.put(egress(status=controller.status()))
    assert controller.drop("a") == [QuarantineBlock(("uid-web", "shop/a"), first, "uid-web", "shop/a", first)]
    assert controller.blocks() == {"shop/a": Block("shop/a", first, (), released=True)}
    controller.put(egress(status=controller.status()))
    controller.put(FreeBlock("uid-web", "shop/a", first))
    assert controller.blocks() == {}


def test_a_pod_that_is_back_under_its_name_has_its_block_again() -> None:
    controller = Controller(egress(), pod("a"))
    first = controller.blocks()["shop/a"]
    controller.put(egress(status=controller.status()))
    controller.drop("a")
    controller.put(egress(status=controller.status()), pod("a", "10.0.0.9"))
    assert controller.blocks() == {"shop/a": first._replace(ips=("10.0.0.9",))}


def test_pods_without_a_block_are_counted() -> None:
    controller = Controller(egress(), *(pod(f"p{number}") for number in range(BLOCKS + 3)))
    blocks = controller.blocks().values()
    assert len({block.first for block in blocks}) == BLOCKS
    assert max(block.last for block in blocks) < OTHER_PORTS[0]
    condition = controller.condition()
    assert (condition.status, condition.reason) == ("False", "PodsWithoutPortBlock")
    assert condition.message.startswith(
        "3 of 121 Pods have no port block, their connections end with the gateway"
    )


@pytest.mark.parametrize("annotations", [{"egress.antrea.io/survive": "none"}, {**SURVIVE, **RESET}])
def test_blocks_and_condition_are_removed_where_connections_are_not_to_survive(
    annotations: dict[str, Any],
) -> None:
    controller = Controller(egress(), pod("a"))
    controller.put(egress(status=controller.status(), **annotations))
    assert controller.status() == {
        "portBlocks": [],
        "conditions": [msgspec.to_builtins(Condition("ConnectionsSurvive"))],
    }


def test_of_egresses_that_share_an_address_the_oldest_gives_blocks() -> None:
    controller = Controller(egress("new", 2), egress("old", 1), pod("a"))
    assert set(controller.blocks("old")) == {"shop/a"}
    # the Pod follows the old one alone
    assert controller.blocks("new") == {}
    assert controller.condition("new").status == "True"


def test_a_pod_of_two_egresses_has_one_block_for_both_families() -> None:
    controller = Controller(egress("four", 1), egress("six", 2, "2001:db8::1"), pod("a"))
    assert set(controller.blocks("four")) == {"shop/a"}
    assert controller.blocks("six") == {}
    message = "1 of 1 Pods have no port block, their connections end with the gateway: Egress four gives them theirs"
    assert controller.condition("six").message == message


def test_a_pod_of_an_older_egress_that_gives_no_blocks_has_none() -> None:
    none = {"egress.antrea.io/survive": "none"}
    controller = Controller(egress("old", 1, "203.0.113.9", **none), egress("new", 2), pod("a"))
    assert controller.blocks("new") == {}


def test_what_is_not_a_block_of_a_status_is_left_out() -> None:
    def row(pod: str, first: int, last: int) -> PortBlock:
        return PortBlock(pod=pod, first_port=first, last_port=last)

    rows = (row("s/a", 1024, 1535), row("s/b", 1024, 1535), row("s/a", 1536, 2047), row("s/c", 1, 512))
    more = (row("s/d", 2048, 2058), row("s/e", 61440, 61951), row("s/f", 60928, 61439))
    assert blocks_of(EgressStatus(port_blocks=rows + more)) == (Block("s/a", 1024), Block("s/f", 60928))


def test_what_is_not_an_address_of_a_block_is_left_out() -> None:
    """Agents may write the status of Egresses, and all Nodes have these addresses in rules."""
    hostile = ("10.0.0.9 }; flush ruleset #", "10.0.0.9\nflush ruleset", "fe80::1%0;flush ruleset", "")
    row = PortBlock(pod="s/a", first_port=1024, last_port=1535, pod_ips=(*hostile, "10.0.0.1", "FD00::0:1"))
    assert blocks_of(EgressStatus(port_blocks=(row,))) == (Block("s/a", 1024, ("10.0.0.1", "fd00::1")),)


def test_blocks_are_all_used_before_a_pod_has_none() -> None:
    blocks = allocate((), {f"s/{number}": () for number in range(500)}, ())
    assert sorted(block.first for block in blocks) == [1024 + 512 * index for index in range(BLOCKS)]
