"""Addresses of Services from pools, in the controller; cases and values of upstream's TestAddService, TestRestart, TestSyncService."""

from __future__ import annotations

import pytest
from external_ip_cluster import POOL, SHARED, Cluster, both

from antrea.apis.annotation import FAILBACK_FOR_SERVICE
from antrea.apis.status import Status
from antrea.facts.cluster import ClusterNode
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import FencedLeadership, PendingAllocation
from antrea.features.framework.idle_request import ProgramGates, annotation_findings
from antrea.features.registry.annotations import BY_NAME

UNSHARED = "; to share it, both need the annotation service.antrea.io/allow-shared-load-balancer-ip"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_service_gets_the_lowest_free_address_of_its_pool(cluster: Cluster) -> None:
    cluster.pool("eip1", "1.2.3.4", "1.2.3.5")
    cluster.pool("eip2", "1.2.4.4", "1.2.4.5")
    cluster.service("a", "eip2")
    cluster.service("b", "eip2")
    cluster.service("none")
    assert (cluster.ip("a"), cluster.ip("b"), cluster.ip("none")) == ("1.2.4.4", "1.2.4.5", "")
    assert (cluster.used("eip1"), cluster.used("eip2")) == (0, 2)
    assert cluster.condition("a") == ("True", "the external IP is of ExternalIPPool eip2")
    assert cluster.events == []
    assert cluster.writes == 2


@pytest.mark.parametrize(
    ("has", "asks", "expected"),
    [
        (None, False, "1.2.3.5"),
        (False, False, ""),
        (True, True, "1.2.3.5"),
        (True, False, ""),
        (False, True, ""),
    ],
)
def test_an_address_that_is_asked_for_is_given_if_nobody_has_it_or_all_share_it(
    cluster: Cluster, has: bool | None, asks: bool, expected: str
) -> None:
    """`has` and `asks`: whether who has it, and who asks, allows to share it."""
    cluster.pool("eip1", "1.2.3.4", "1.2.3.5")
    if has is not None:
        cluster.service("svc2", "eip1", "1.2.3.5", "1.2.3.5", shared=has)
    cluster.service("svc1", "eip1", "1.2.3.5", shared=asks)
    assert cluster.ip("svc1") == expected
    assert cluster.used("eip1") == 1


def test_who_shares_an_address_with_another_namespace_is_told_with_whom(cluster: Cluster) -> None:
    cluster.pool("eip1", "1.2.3.4", "1.2.3.5")
    for name in ("svc1", "svc2"):
        cluster.service(name, "eip1", "1.2.3.5", shared=True)
    assert cluster.ip("svc2") == "1.2.3.5"
    assert "other Namespaces" not in str(cluster.events)
    cluster.service("theirs", "eip1", "1.2.3.5", shared=True, space="tenant")
    assert cluster.ip("theirs") == "1.2.3.5"
    said = "1.2.3.5 is also the external IP of Services of other Namespaces: "
    found = [event for event in cluster.events if event[1].startswith(said)]
    assert sorted(found) == [
        ("svc1", f"{said}tenant/theirs", True),
        ("svc2", f"{said}tenant/theirs", True),
        ("theirs", f"{said}shop/svc1, shop/svc2", True),
    ]


def test_a_restarted_controller_finds_every_address_with_whom_it_was(cluster: Cluster) -> None:
    for name, wants, has, shared in (
        ("svc1", "1.1.1.1", "1.1.1.1", True), ("svc2", "1.1.1.1", "1.1.1.1", True), ("svc3", "1.1.1.1", "", True),
        ("svc4", "1.1.1.1", "", False), ("svc5", "1.1.1.2", "1.1.1.2", True), ("svc6", "1.1.1.2", "1.1.1.2", False),
        ("svc7", "1.1.1.2", "", True), ("svc8", "1.1.1.2", "", False), ("svc9", "1.1.1.10", "1.1.1.9", False),
        ("svc10", "", "", False),
    ):  # fmt: skip
        cluster.service(name, "eip1", wants, has, shared=shared)
    cluster.service("svc11", "eip2", "1.1.2.2")
    cluster.pool("eip1", "1.1.1.1", "1.1.1.10")
    cluster.pool("eip2", "1.1.2.1", "1.1.2.10")
    assert {name: cluster.ip(name) for name in cluster.services} == {
        "svc1": "1.1.1.1", "svc2": "1.1.1.1", "svc3": "1.1.1.1", "svc4": "", "svc5": "1.1.1.2", "svc6": "1.1.1.2",
        "svc7": "", "svc8": "", "svc9": "1.1.1.10", "svc10": "1.1.1.3", "svc11": "1.1.2.2",
    }  # fmt: skip
    assert (cluster.used("eip1"), cluster.used("eip2")) == (4, 1)


def test_an_address_follows_each_change_of_pool_annotation_request_and_type(cluster: Cluster) -> None:
    cluster.service("svc1", "eip1")
    assert cluster.condition("svc1") == ("False", "ExternalIPPool eip1 does not exist")
    for _ in range(2):
        cluster.pool("eip1", "1.2.3.4", "1.2.3.5")
        assert (cluster.ip("svc1"), cluster.used("eip1")) == ("1.2.3.4", 1)
        cluster.unpool("eip1")
        assert cluster.ip("svc1") == ""
    cluster.pool("eip1", "1.2.3.4", "1.2.3.5")
    assert cluster.ip("svc1") == "1.2.3.4"
    cluster.service("svc2", "eip1", "1.2.3.4")
    cluster.service("svc3", "eip1", "1.2.3.4", shared=True)

    def have() -> list[str]:
        return [cluster.ip(name) for name in cluster.services]

    assert have() == ["1.2.3.4", "", ""]
    cluster.change("svc1", notes={SHARED: "true"})
    assert have() == ["1.2.3.4", "", "1.2.3.4"]
    cluster.change("svc1", notes={POOL: "eip2"})
    assert have() == ["", "", "1.2.3.4"]
    assert cluster.used("eip1") == 1
    cluster.delete("svc3")
    assert have() == ["", "1.2.3.4"]
    cluster.delete("svc2")
    assert cluster.used("eip1") == 0
    cluster.pool("eip2", "1.2.4.4", "1.2.4.5")
    assert (have(), cluster.used("eip2")) == (["1.2.4.4"], 1)
    cluster.change("svc1", loadBalancerIP="1.2.4.5")
    assert (have(), cluster.used("eip2")) == (["1.2.4.5"], 1)
    cluster.change("svc1", loadBalancerIP="1.2.3.5")
    assert (have(), cluster.used("eip1"), cluster.used("eip2")) == ([""], 0, 0)
    cluster.change("svc1", notes={POOL: "eip1"})
    assert (have(), cluster.used("eip1"), cluster.used("eip2")) == (["1.2.3.5"], 1, 0)
    cluster.change("svc1", loadBalancerIP="1.2.3.6")
    assert (have(), cluster.used("eip1")) == ([""], 0)
    cluster.change("svc1", loadBalancerIP="")
    assert (have(), cluster.used("eip1"), cluster.used("eip2")) == (["1.2.3.4"], 1, 0)
    cluster.change("svc1", type="ClusterIP")
    assert (have(), cluster.used("eip1"), cluster.used("eip2")) == ([""], 0, 0)
    cluster.change("svc1", type="LoadBalancer")
    assert (have(), cluster.used("eip1")) == (["1.2.3.4"], 1)
    cluster.delete("svc1")
    assert cluster.used("eip1") == 0


def test_without_the_annotation_an_address_of_ours_goes_and_one_of_another_load_balancer_stays(
    cluster: Cluster,
) -> None:
    cluster.pool("p", "1.2.3.4", "1.2.3.9")
    cluster.service("ours", "p")
    cluster.service("other", "", "", "1.2.3.5")
    cluster.service("classed", "p", "", "1.2.3.6", loadBalancerClass="metallb.io/l2")
    cluster.service("own-class", "p", loadBalancerClass="service.antrea.io/external-ip")
    cluster.service("next", "p")
    assert [cluster.ip(name) for name in cluster.services] == [
        "1.2.3.4",
        "1.2.3.5",
        "1.2.3.6",
        "1.2.3.7",
        "1.2.3.8",
    ]
    assert cluster.used("p") == 3
    cluster.change("ours", notes={POOL: None})
    assert (cluster.ip("ours"), cluster.ip("other"), cluster.used("p")) == ("", "1.2.3.5", 2)
    assert "conditions" not in cluster.services["ours"]["status"]
    cluster.change("ours", notes={POOL: "p"})
    assert cluster.ip("ours") == "1.2.3.4"


@pytest.mark.parametrize(
    ("wants", "why"),
    [
        ("1.2.3.9", "spec.loadBalancerIP 1.2.3.9 is not an address of ExternalIPPool p"),
        ("nine", "spec.loadBalancerIP nine is not an IP address"),
        ("1.2.3.4", "spec.loadBalancerIP 1.2.3.4 is that of Service shop/first" + UNSHARED),
        ("1.2.3.5", "spec.loadBalancerIP 1.2.3.5 is that of Egress e"),
        ("", "ExternalIPPool p has no free address"),
    ],
)  # fmt: skip
def test_a_service_that_gets_no_address_says_why_and_an_event_does_once(
    cluster: Cluster, wants: str, why: str
) -> None:
    cluster.pool("p", "1.2.3.4", "1.2.3.5")
    cluster.service("first", "p")
    cluster.egress("e", "p", "1.2.3.5")
    cluster.settle()
    cluster.service("late", "p", wants)
    assert (cluster.ip("late"), cluster.condition("late")) == ("", ("False", why))
    cluster.change("late", notes={"other": "change"})
    cluster.settle()
    assert cluster.events == [("late", why, True)]
    if wants == "1.2.3.4":
        cluster.delete("first")
        assert cluster.ip("late") == wants
        assert cluster.events[1:] == [("late", "1.2.3.4 is the external IP, of ExternalIPPool p", False)]


def test_what_a_user_wrote_is_one_short_line_in_conditions_and_events(cluster: Cluster) -> None:
    cluster.pool("p", "1.2.3.4", "1.2.3.5")
    hostile = "nine\n\x1b[2J" + "x" * 100_000
    cluster.service("asks", "p", hostile)
    cluster.service("names", hostile)
    for name in ("asks", "names"):
        status, why = cluster.condition(name)
        assert (status, why.isprintable(), len(why) < 400) == ("False", True, True)
        assert "nine\\n\\x1b[2J" in why
    assert {len(why) < 400 for _, why, _ in cluster.events} == {True}


def test_egresses_and_services_of_one_pool_never_have_one_address_and_its_usage_counts_both(
    cluster: Cluster,
) -> None:
    cluster.pool("p", "1.2.3.4", "1.2.3.7")
    cluster.egress("e", "p", "1.2.3.4")
    cluster.service("a", "p")
    assert (cluster.ip("a"), cluster.used("p")) == ("1.2.3.5", 2)
    # by hand, and older than the Service: it comes too late all the same
    cluster.egress("e", "p", "1.2.3.5")
    assert (cluster.ip("a"), cluster.used("p")) == ("1.2.3.5", 1)
    row = cluster.facts.get(EgressRow, "e")
    (status,) = (
        one for one in cluster.engine.standing().values() if isinstance(one, Status) and one.kind == "Egress"
    )
    assert row is not None
    assert status.conditions[0].message.endswith(
        "cannot allocate IP 1.2.3.5 in any range (Service/shop/a has it)"
    )
    # promised to an Egress, whose spec does not say it yet
    cluster.facts.put(PendingAllocation("Egress/e", "u-e", 1, "1.2.3.6"))
    cluster.service("b", "p", "1.2.3.6")
    assert cluster.ip("b") == ""
    cluster.facts.drop(PendingAllocation, "Egress/e")
    assert cluster.ip("b") == "1.2.3.6"


def test_of_a_pool_with_both_families_a_service_gets_one_of_each_of_its_own(cluster: Cluster) -> None:
    cluster.pool("p", "", "", **both())
    cluster.service("six", "p", ipFamilies=["IPv6"])
    cluster.service("four", "p", ipFamilies=["IPv4"])
    cluster.service("dual", "p", ipFamilies=["IPv6", "IPv4"])
    assert [cluster.ips(name) for name in cluster.services] == [
        ["fd00::4"],
        ["1.2.3.4"],
        ["fd00::5", "1.2.3.5"],
    ]
    assert cluster.condition("dual") == ("True", "the external IP is of ExternalIPPool p")
    assert cluster.used("p") == 4


def test_a_dual_stack_service_whose_pool_has_no_free_address_of_one_family_has_the_other_and_says_so(
    cluster: Cluster,
) -> None:
    cluster.pool("p", "", "", **both())
    for name in ("a", "b", "c"):
        cluster.service(name, "p", ipFamilies=["IPv4", "IPv6"])
    assert [cluster.ips(name) for name in cluster.services] == [
        ["1.2.3.4", "fd00::4"],
        ["1.2.3.5", "fd00::5"],
        ["1.2.3.6"],
    ]
    why = "ExternalIPPool p has no free IPv6 address"
    assert cluster.condition("c") == ("False", why)
    cluster.delete("a")
    assert cluster.ips("c") == ["1.2.3.6", "fd00::4"]
    assert cluster.events == [
        ("c", why, True),
        ("c", "1.2.3.6, fd00::4 is the external IP, of ExternalIPPool p", False),
    ]


def test_addresses_come_and_go_with_the_families_of_a_service_and_of_its_pool(cluster: Cluster) -> None:
    cluster.pool("p", "", "", **both())
    cluster.service("a", "p", ipFamilies=["IPv4"])
    cluster.service("b", "p", ipFamilies=["IPv4"])
    assert (cluster.ips("a"), cluster.ips("b")) == (["1.2.3.4"], ["1.2.3.5"])
    cluster.change("b", ipFamilies=["IPv4", "IPv6"])
    assert (cluster.ips("b"), cluster.used("p")) == (["1.2.3.5", "fd00::4"], 3)
    cluster.change("b", ipFamilies=["IPv6"])
    assert (cluster.ips("b"), cluster.used("p")) == (["fd00::4"], 2)
    cluster.change("b", ipFamilies=["IPv6", "IPv4"])
    assert (cluster.ips("b"), cluster.used("p")) == (["fd00::4", "1.2.3.5"], 3)
    cluster.pool("p", "1.2.3.4", "1.2.3.6")
    assert (cluster.ips("b"), cluster.used("p")) == (["1.2.3.5"], 2)
    cluster.pool("p", "", "", **both())
    assert cluster.ips("b") == ["fd00::4", "1.2.3.5"]
    # an address that is asked for by name is the only one
    cluster.change("b", loadBalancerIP="1.2.3.6")
    assert (cluster.ips("b"), cluster.used("p")) == (["1.2.3.6"], 2)
    cluster.change("b", loadBalancerIP="")
    cluster.change("b", notes={POOL: None})
    assert (cluster.ips("b"), cluster.used("p")) == ([], 1)


def test_what_is_being_written_as_a_second_address_is_not_given_to_others(cluster: Cluster) -> None:
    cluster.pool("p", "", "", **both())
    cluster.service("six", "p", ipFamilies=["IPv6"])
    cluster.service("dual", "p", ipFamilies=["IPv4", "IPv6"])
    cluster.facts.put(PendingAllocation("Service/shop/dual 1", "u-dual", 1_000, "fd00::4"))
    assert (cluster.ips("dual"), cluster.ips("six")) == (["1.2.3.4", "fd00::4"], ["fd00::5"])


def test_nothing_is_written_while_another_replica_leads(cluster: Cluster) -> None:
    cluster.facts.drop(FencedLeadership, "self")
    cluster.pool("p", "1.2.3.4", "1.2.3.5")
    cluster.service("a", "p")
    assert (cluster.ip("a"), cluster.writes) == ("", 0)


def test_a_range_that_no_longer_has_the_address_gives_another(cluster: Cluster) -> None:
    cluster.pool("p", "1.2.3.4", "1.2.3.5")
    cluster.service("a", "p")
    assert cluster.ip("a") == "1.2.3.4"
    cluster.pool("p", "1.2.3.8", "1.2.3.9")
    assert (cluster.ip("a"), cluster.used("p")) == ("1.2.3.8", 1)


def test_an_annotation_that_goes_and_comes_back_within_one_list_changes_nothing(cluster: Cluster) -> None:
    cluster.pool("p", "1.2.3.4", "1.2.3.5")
    cluster.service("a", "p")
    cluster.service("b", "p")
    assert (cluster.ip("a"), cluster.ip("b")) == ("1.2.3.4", "1.2.3.5")
    writes = cluster.writes
    for _ in range(3):
        cluster.change("a", notes={POOL: None})
        cluster.change("a", notes={POOL: "p"})
    assert (cluster.ip("a"), cluster.writes, cluster.used("p")) == ("1.2.3.4", writes, 2)
    for _ in range(3):
        cluster.change("a", notes={POOL: None})
        assert cluster.ip("a") == ""
        cluster.change("a", notes={POOL: "p"})
        assert (cluster.ip("a"), cluster.used("p")) == ("1.2.3.4", 2)


def test_a_service_that_changes_its_family_gets_an_address_of_the_new_one(cluster: Cluster) -> None:
    cluster.pool("p", "", "", **both())
    cluster.pool("four", "1.2.4.4", "1.2.4.5")
    cluster.service("a", "p")
    cluster.service("b", "four")
    assert (cluster.ip("a"), cluster.ip("b")) == ("1.2.3.4", "1.2.4.4")
    for name in ("a", "b"):
        cluster.change(name, ipFamilies=["IPv6"])
    assert cluster.ip("a") == "fd00::4"
    assert cluster.ip("b") == "1.2.4.4"  # its pool has no other
    cluster.change("a", ipFamilies=["IPv4"])
    assert (cluster.ip("a"), cluster.used("p")) == ("1.2.3.4", 1)


def test_a_value_of_an_annotation_without_effect_has_one_event(cluster: Cluster) -> None:
    """That of idle requests, which judge all annotations: the feature itself records none."""
    cluster.pool("p", "1.2.3.4", "1.2.3.5")
    cluster.service("a", "p")
    for value in (" later ", "never", "when-idle", "immediate"):
        cluster.change("a", notes={FAILBACK_FOR_SERVICE: value})
        cluster.settle()
        findings = list(
            annotation_findings("Service", {FAILBACK_FOR_SERVICE: value}, BY_NAME, ProgramGates())
        )
        assert [one.reason for one in findings] == (["AnnotationInvalid"] if "later" in value else [])
    assert (cluster.ip("a"), cluster.events) == ("1.2.3.4", [])


def test_pools_in_the_nodes_own_network_give_no_address_of_a_node(cluster: Cluster) -> None:
    for number, ips in enumerate((("1.2.3.4", "fd00::4"), ("1.2.3.6",))):
        cluster.facts.put(ClusterNode(f"n{number}", "", ips))
    cluster.pool("p", "", "", **both())
    cluster.pool("q", "1.2.3.7", "1.2.3.8")
    for name, pool in (("a", "p"), ("b", "p"), ("c", "q")):
        cluster.service(name, pool, ipFamilies=["IPv4", "IPv6"])
    assert [cluster.ips(name) for name in "abc"] == [["1.2.3.5", "fd00::5"], [], ["1.2.3.7"]]
    why = "ExternalIPPool p has no free IPv4 address; ExternalIPPool p has no free IPv6 address"
    assert cluster.condition("b") == ("False", why)
    cluster.facts.drop(ClusterNode, "n1")
    assert cluster.ips("b") == ["1.2.3.6"]
    # who asks for it by name gets it, as upstream
    cluster.service("d", "p", "1.2.3.4")
    assert cluster.ips("d") == ["1.2.3.4"]


def test_of_several_pools_each_family_gets_its_address_of_the_first_that_has_such(cluster: Cluster) -> None:
    cluster.pool("four", "1.2.3.4", "1.2.3.5")
    cluster.pool("six", "fd00::4", "fd00::5")
    cluster.pool("other", "1.2.9.4", "1.2.9.5")
    cluster.service("dual", "four, six,other", ipFamilies=["IPv6", "IPv4"])
    cluster.service("one", "six,four", ipFamilies=["IPv4"])
    assert (cluster.ips("dual"), cluster.ips("one")) == (["fd00::4", "1.2.3.4"], ["1.2.3.5"])
    assert cluster.condition("dual") == ("True", "the external IP is of ExternalIPPools six, four")
    assert [cluster.used(name) for name in ("four", "six", "other")] == [2, 1, 0]
    # the first pool that has the family counts, full or not
    cluster.service("late", "four,other", ipFamilies=["IPv4"])
    assert (cluster.ips("late"), cluster.condition("late")[1]) == (
        [],
        "ExternalIPPool four has no free address",
    )
    cluster.change("late", notes={POOL: "other,four"})
    assert cluster.ips("late") == ["1.2.9.4"]
    # an address that is asked for is of whichever of them has it
    cluster.change("late", notes={POOL: "six,other"}, loadBalancerIP="1.2.9.5")
    assert cluster.ips("late") == ["1.2.9.5"]
    cluster.change("late", loadBalancerIP="1.2.8.8")
    why = "spec.loadBalancerIP 1.2.8.8 is not an address of ExternalIPPools six, other"
    assert (cluster.ips("late"), cluster.condition("late")) == ([], ("False", why))


def test_a_service_whose_second_pool_goes_keeps_the_address_of_the_first_and_says_so(
    cluster: Cluster,
) -> None:
    cluster.pool("four", "1.2.3.4", "1.2.3.5")
    cluster.service("dual", "four,six", ipFamilies=["IPv6", "IPv4"])
    why = "ExternalIPPool six does not exist"
    assert (cluster.ips("dual"), cluster.condition("dual")) == (["1.2.3.4"], ("False", why))
    for _ in range(2):
        cluster.pool("six", "fd00::4", "fd00::5")
        assert cluster.ips("dual") == ["fd00::4", "1.2.3.4"]
        assert cluster.condition("dual")[0] == "True"
        cluster.unpool("six")
        assert (cluster.ips("dual"), cluster.condition("dual")) == (["1.2.3.4"], ("False", why))
    cluster.unpool("four")
    assert (cluster.ips("dual"), cluster.condition("dual")[1]) == (
        [],
        "ExternalIPPools four, six do not exist",
    )
    # one that has all its addresses has no use for the pool that is gone
    cluster.pool("four", "1.2.3.4", "1.2.3.5")
    cluster.change("dual", ipFamilies=["IPv4"])
    assert (cluster.ips("dual"), cluster.condition("dual")[0]) == (["1.2.3.4"], "True")


def test_of_too_many_pools_the_first_count_and_an_event_says_so(cluster: Cluster) -> None:
    cluster.pool("last", "1.2.3.4", "1.2.3.5")
    cluster.service("many", "a,b,c,d,last")
    assert cluster.condition("many") == ("False", "ExternalIPPools a, b, c, d do not exist")
    why = "annotation service.antrea.io/external-ip-pool: of 5 pools the first 4 count"
    assert ("many", why, True) in cluster.events
    cluster.change("many", notes={POOL: "a,b,c,last"})
    assert cluster.ip("many") == "1.2.3.4"
