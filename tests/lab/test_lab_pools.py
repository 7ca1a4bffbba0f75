"""Addresses of an ExternalIPPool for Egresses, as a user sees them, with the controller's Pod replaced in between."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import yaml
from api_client import takes

from lab.process import wait_for

if TYPE_CHECKING:
    from lab.cluster import Lab

POOL = "pools-test"
NAMES = ("pools-a", "pools-b", "pools-c", "pools-d")
CONTROLLER = ("-n", "kube-system", "get", "pods", "-l", "component=antrea-controller", "-o", "json")


class Given(NamedTuple):
    """What an Egress names, and what its status says of that."""

    address: str
    status: str
    message: str


def pool(*ranges: dict[str, str]) -> dict[str, Any]:
    # no Node has the label: this test is about the controller alone
    spec = {"ipRanges": [*ranges], "nodeSelector": {"matchLabels": {"pools-test": "nowhere"}}}
    return {
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ExternalIPPool", "metadata": {"name": POOL}, "spec": spec,
    }  # fmt: skip


def egress(name: str, version: str = "v1beta1") -> dict[str, Any]:
    spec = {"appliedTo": {"podSelector": {"matchLabels": {"app": name}}}, "externalIPPool": POOL}
    return {
        "apiVersion": f"crd.antrea.io/{version}",
        "kind": "Egress",
        "metadata": {"name": name},
        "spec": spec,
    }


def given(lab: Lab) -> dict[str, Given]:
    shown = json.loads(lab.api.kubectl("get", "egress", "-o", "json"))["items"]
    found = {}
    for one in shown:
        for condition in one.get("status", {}).get("conditions", []):
            if condition["type"] == "IPAllocated":
                address = one["spec"].get("egressIP", "")
                found[one["metadata"]["name"]] = Given(address, condition["status"], condition["message"])
    return {name: found[name] for name in NAMES if name in found}


def has(address: str) -> Given:
    return Given(address, "True", "EgressIP is successfully allocated")


def lacks(why: str) -> Given:
    return Given("", "False", f"Cannot allocate EgressIP from ExternalIPPool: {why}")


def becomes(lab: Lab, **wanted: Given) -> None:
    """By the last letters of names."""
    expected = {f"pools-{letter}": one for letter, one in wanted.items()}
    wait_for(f"{expected}", lambda: given(lab) == expected, seconds=60, step=0.2)


def events(lab: Lab, name: str) -> list[str]:
    shown = lab.api.kubectl("get", "events", "--field-selector", f"involvedObject.name={name}", "-o", "json")
    return [one["message"] for one in json.loads(shown)["items"]]


def usage(lab: Lab) -> list[str]:
    """The row of `kubectl get`, without the age."""
    head, row = (line.split() for line in lab.api.kubectl("get", "externalippool", POOL).splitlines())
    assert head == ["NAME", "TOTAL", "USED", "AGE"]
    return row[:3]


def controller(lab: Lab) -> str:
    """UID of the Pod that is ready; empty while there is none."""
    for one in json.loads(lab.api.kubectl(*CONTROLLER))["items"]:
        conditions = {each["type"]: each["status"] for each in one["status"].get("conditions", [])}
        if "deletionTimestamp" not in one["metadata"] and conditions.get("Ready") == "True":
            return str(one["metadata"]["uid"])
    return ""


def test_addresses_are_given_told_freed_and_kept_over_a_new_controller(lab: Lab) -> None:
    kubectl, first = lab.api.kubectl, {"cidr": "10.99.0.0/30"}
    none = lacks("cannot allocate IP in any range")
    gone = lacks(f"ExternalIPPool {POOL} does not exist")
    try:
        lab.api.apply(yaml.safe_dump(pool(first)))
        wait_for("an empty pool", lambda: usage(lab) == [POOL, "2", "0"], seconds=60, step=0.2)
        lab.api.apply(yaml.safe_dump_all([egress("pools-a"), egress("pools-b")]))
        becomes(lab, a=has("10.99.0.1"), b=has("10.99.0.2"))
        lab.api.apply(yaml.safe_dump(egress("pools-c", "v1alpha2")))
        becomes(lab, a=has("10.99.0.1"), b=has("10.99.0.2"), c=none)
        wait_for("a full pool", lambda: usage(lab) == [POOL, "2", "2"], seconds=60, step=0.2)
        assert kubectl("get", "egress", "pools-a").split()[:4] == ["NAME", "EGRESSIP", "AGE", "NODE"]

        kubectl("delete", "egress", "pools-a")
        becomes(lab, b=has("10.99.0.2"), c=has("10.99.0.1"))
        told = [none.message, f"EgressIP 10.99.0.1 is allocated from ExternalIPPool {POOL}"]
        wait_for("both Events", lambda: set(told) <= {*events(lab, "pools-c")}, seconds=60, step=0.2)

        before = controller(lab)
        kubectl("-n", "kube-system", "delete", "pod", "-l", "component=antrea-controller", "--grace-period=1")
        wait_for("a new controller", lambda: controller(lab) not in ("", before), seconds=60, step=0.2)
        more = [pool(first, {"start": "10.99.1.1", "end": "10.99.1.1"}), egress("pools-d")]
        wait_for("more", partial(takes, lab, yaml.safe_dump_all(more)), seconds=60, step=0.2)
        becomes(lab, b=has("10.99.0.2"), c=has("10.99.0.1"), d=has("10.99.1.1"))
        wait_for("a full pool again", lambda: usage(lab) == [POOL, "3", "3"], seconds=60, step=0.2)

        kubectl("delete", "externalippool", POOL)
        becomes(lab, b=gone, c=gone, d=gone)
    finally:
        kubectl("delete", "egress", "--ignore-not-found", *NAMES)
        kubectl("delete", "externalippool", "--ignore-not-found", POOL)
