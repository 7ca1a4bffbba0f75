"""MetalLB beside us in layer 2 mode: each serves its Services, and no address is answered for twice."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING

import pytest
from admission_object import crd
from metallb import (
    NODES,
    OURS,
    OURS_CLASS,
    THEIR_CLASS,
    addresses,
    answering,
    fetch,
    metallb,
    owner,
    service,
    thing,
)
from quiet_pod import SERVING, quiet_pods

from lab.process import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import Lab

pytestmark = [pytest.mark.wide, pytest.mark.timeout(1800)]

THEIRS = "172.30.0.235"
THINGS = (
    thing("IPAddressPool", {"addresses": [f"{THEIRS}/32"]}),
    thing("L2Advertisement", {"ipAddressPools": ["theirs"]}),
)
PRINTED = f"""
apiVersion: metallb.io/v1beta1
kind: IPAddressPool
metadata:
  name: first-pool
  namespace: metallb-system
spec:
  addresses:
  - {THEIRS}-{THEIRS}
---
apiVersion: metallb.io/v1beta1
kind: L2Advertisement
metadata:
  name: example
  namespace: metallb-system
"""
"""As upstream's documents have it, with a range of the lab's network: an advertisement without `spec` is of all pools."""


@pytest.mark.parametrize(
    ("options", "things", "own_class", "their_class"),
    [((f"--lb-class={THEIR_CLASS}",), THINGS, "", THEIR_CLASS), ((), (PRINTED,), OURS_CLASS, "")],
    ids=["their-class", "our-class"],
)
def test_each_load_balancer_answers_for_its_own_services_alone(
    lab: Lab,
    tmp_path: Path,
    options: tuple[str, ...],
    things: tuple[str, ...],
    own_class: str,
    their_class: str,
) -> None:
    pool = {"ipRanges": [{"start": OURS, "end": OURS}], "nodeSelector": {}}
    lab.api.apply(json.dumps(crd("ExternalIPPool", "ours", pool)))
    with (
        quiet_pods(lab, {"serves-a": "node-1", "serves-b": "node-2"}, SERVING),
        metallb(lab, tmp_path, options, things),
    ):
        lab.api.kubectl("label", "pod", "serves-a", "serves-b", "app=balanced")
        lab.api.apply(service("ours", "ours", own_class))
        lab.api.apply(service("theirs", "", their_class))
        wanted = {"ours": [OURS], "theirs": [THEIRS]}
        wait_for("both addresses", lambda: addresses(lab) == wanted, seconds=120)
        wait_for("a Node for ours", lambda: owner(lab), seconds=60)
        for ip in (OURS, THEIRS):
            for machine in ("gateway", "outside"):
                wait_for(f"{ip} for {machine}", partial(fetch, lab, machine, ip), seconds=60)
        assert answering(lab, OURS) == [owner(lab)]
        theirs = answering(lab, THEIRS)
        assert len(theirs) == 1
        assert theirs[0] in NODES
        # with their class our annotation has no effect, and their pool has no second address
        if their_class:
            lab.api.apply(service("both", "ours", their_class))
            lab.api.kubectl("wait", "--for=jsonpath={.spec.clusterIP}", "service/both")
        home = owner(lab)
        lab.api.kubectl("cordon", home)
        try:
            wait_for("ours elsewhere", lambda: owner(lab) not in ("", home), seconds=60)
            wait_for("one answer for ours", lambda: answering(lab, OURS) == [owner(lab)], seconds=60)
            assert answering(lab, THEIRS) == theirs
            assert all(fetch(lab, "outside", ip) for ip in (OURS, THEIRS))
        finally:
            lab.api.kubectl("uncordon", home)
        assert addresses(lab) == wanted | ({"both": []} if their_class else {})
        # what theirs gave up, nobody answers for; ours stays
        lab.api.kubectl("delete", "service", "both", "theirs", "--ignore-not-found")
        wait_for("no answer for theirs", lambda: answering(lab, THEIRS) == [], seconds=60)
        assert answering(lab, OURS) == [owner(lab)]
    lab.api.kubectl("delete", "externalippool", "ours")
