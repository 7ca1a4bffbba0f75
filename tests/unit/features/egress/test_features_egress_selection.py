"""What the status of an Egress says of Pods that it selects in vain, as Egresses and Pods come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from antrea.apis.crd.egress import Egress
from antrea.apis.crd.part import Condition
from antrea.apis.status import Status
from antrea.controller.compute.runtime import FEATURES
from antrea.engine import Engine, Facts
from antrea.facts.cluster import Namespace, Pod
from antrea.facts.egress import EgressRow
from antrea.facts.external_ip import FencedLeadership
from antrea.features.egress.controller.feature import egress_row
from antrea.features.egress.controller.selection import MANAGER
from antrea.features.framework.event import RecordEvent
from antrea.features.grouping.publication import Memberships

if TYPE_CHECKING:
    from antrea.facts.fact import Fact


def egress(name: str, since: int, app: str = "web", ip: str = "203.0.113.1", *told: str) -> EgressRow:
    found = {
        "metadata": {"name": name, "uid": f"uid-{name}", "creationTimestamp": f"2026-01-0{since}T00:00:00Z"},
        "spec": {"appliedTo": {"podSelector": {"matchLabels": {"app": app}}}, "egressIP": ip},
        "status": {"conditions": [{"type": kind, "status": "True"} for kind in told]},
    }
    return egress_row(msgspec.convert(found, Egress))


def pod(name: str, labels: str = "app=web", *, host: bool = False, space: str = "shop") -> Pod:
    return Pod(space, name, labels=f"{space}/{labels}", node="n1", host_network=host)


class Controller:
    """The controller's units over facts; it leads."""

    def __init__(self, *rows: Fact) -> None:
        self.facts = Facts()
        self.engine = Engine(self.facts, [unit for feature in FEATURES for unit in feature.units])
        self.put(FencedLeadership(), Namespace("shop"), Namespace("other"), *rows)

    def put(self, *rows: Fact) -> dict[str, str]:
        """Events that follow, by Egress."""
        for row in rows:
            self.facts.put(row)
        acts = self.engine.plan().acts
        return {act.name: act.message for act in acts if isinstance(act, RecordEvent)}

    def drop(self, kind: type[Fact], key: str) -> None:
        self.facts.drop(kind, key)
        self.engine.plan()

    @property
    def said(self) -> dict[str, tuple[Condition, ...]]:
        return {
            entry.path.rpartition("/")[2]: entry.conditions
            for entry in self.engine.standing().values()
            if isinstance(entry, Status) and entry.manager == MANAGER
        }


def overlapped(*names: str) -> Condition:
    message = f"Pods that it selects follow an older Egress: {', '.join(names)}"
    return Condition("Overlapped", "True", reason="OlderEgress", message=message)


def host_network(*spaces: str) -> str:
    return (
        "Pods that it selects are in their Node's network and leave with the Node's address, in Namespaces: "
        + ", ".join(spaces)
    )


def test_egresses_that_a_pod_does_not_follow_name_the_one_of_their_family_that_it_follows() -> None:
    rows = [egress("old", 1), egress("a-twin", 1), egress("a-late", 2), egress("six", 3, ip="fd00::1")]
    controller = Controller(*rows, egress("younger six", 4, ip="fd00::2"), egress("alone", 2, "api"))
    assert controller.said == {}
    controller.put(pod("web-1"), pod("api-1", "app=api"))
    expected = {name: (overlapped("a-twin"),) for name in ("old", "a-late")}
    assert controller.said == expected | {"younger six": (overlapped("six"),)}
    controller.drop(EgressRow, "a-twin")
    assert controller.said["a-late"] == (overlapped("old"),)
    assert "old" not in controller.said
    controller.drop(Pod, "shop/web-1")
    assert controller.said == {}


def test_an_egress_without_an_address_yet_stands_in_nobodys_way() -> None:
    controller = Controller(egress("old", 1, ip=""), egress("young", 2), pod("web-1"))
    assert controller.said == {}
    controller.put(egress("old", 1))
    assert controller.said == {"young": (overlapped("old"),)}


def test_pods_of_the_nodes_network_are_told_once_by_an_event_and_never_by_a_status() -> None:
    controller = Controller(egress("old", 1), egress("young", 2))
    assert controller.put(pod("web-1", host=True)) == {
        name: host_network("shop") for name in ("old", "young")
    }
    assert controller.put(pod("web-2", host=True, space="other"), pod("web-3")) == {}
    assert controller.said == {"young": (overlapped("old"),)}
    controller.put(egress("old", 1, "api"), egress("young", 2, "api"))
    assert controller.said == {}
    assert controller.put(egress("old", 1)) == {"old": host_network("other", "shop")}


def test_a_word_that_is_true_no_more_is_taken_back_and_only_who_leads_speaks() -> None:
    controller = Controller(
        egress("e", 1, "web", "203.0.113.1", "Overlapped", "HostNetworkPods", "IPAllocated")
    )
    assert controller.said == {"e": (Condition("Overlapped"), Condition("HostNetworkPods"))}
    controller.drop(FencedLeadership, "self")
    assert controller.said == {}


def test_the_group_of_an_egress_whose_address_is_anothers_has_its_pods_which_agents_close() -> None:
    """Upstream empties it, and the Pods leave with their Node's address. What agents do: test_features_egress_missing."""
    old, young = (
        msgspec.structs.replace(egress(name, since), pool="p")
        for since, name in enumerate(("old", "young"), 1)
    )
    controller = Controller(old, young, pod("web-1"))
    standing = controller.engine.standing().values()
    members = [one for entry in standing if isinstance(entry, Memberships) for one in entry.each()]
    assert {(one.resource, one.name, one.who) for one in members} == {
        ("egressgroups", name, "shop/web-1") for name in ("old", "young")
    }
