"""A cluster that runs upstream's Antrea takes our definitions over its own, keeps its objects, and can go back ($ANTREA_SRC)."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from own_lab import own_lab

from antrea.apis.crd.definition import GROUP
from antrea.features.registry.crds import CRDS
from lab.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.cluster import Lab

SOURCE = os.environ.get("ANTREA_SRC", "")
MANIFEST = "build/yamls/antrea-crds.yml"
OURS = (Path(__file__).parents[2] / MANIFEST).read_text()
OLD_RELEASE = "v1.15.1"
pytestmark = [
    pytest.mark.wide,
    pytest.mark.skipif(not SOURCE, reason="ANTREA_SRC names no checkout of upstream"),
]


def shown(release: str) -> str:
    command = ["git", "-C", SOURCE, "show", f"{release}:{MANIFEST}"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"the checkout has no {release}")
    return found.stdout


def install(plane: Lab, manifest: str) -> None:
    plane.api.apply(manifest)
    plane.api.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


def stored(version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": {"name": "kept"}, "spec": spec}


POOL = {"ipRanges": [{"cidr": "10.9.0.0/28"}], "nodeSelector": {"matchLabels": {"role": "edge"}}}
SUBNET = {"gateway": "10.8.0.1", "prefixLength": 24}
OBJECTS = {
    "clustergroups": stored("v1beta1", "ClusterGroup", {"podSelector": {"matchLabels": {"app": "web"}}}),
    "clusternetworkpolicies": stored(
        "v1beta1", "ClusterNetworkPolicy", {"priority": 5, "ingress": [{"action": "Drop", "name": "all"}]}
    ),
    "egresses": stored("v1alpha2", "Egress", {"appliedTo": {"podSelector": {}}, "egressIP": "10.9.0.1"}),
    "externalippools": stored("v1alpha2", "ExternalIPPool", POOL),
    "ippools": stored(
        "v1alpha2", "IPPool", {"ipVersion": 4, "ipRanges": [{"cidr": "10.8.0.0/28", **SUBNET}]}
    ),
    "tiers": stored("v1alpha1", "Tier", {"priority": 77, "description": "ours"}),
}


def specs(plane: Lab, versions: dict[str, str]) -> dict[str, Any]:
    return {
        plural: plane.api.get(f"/apis/{GROUP}/{version}/{plural}/kept")["spec"]
        for plural, version in versions.items()
    }


@pytest.fixture
def old_plane() -> Iterator[Lab]:
    """An API server that nobody else shares: its definitions become those of an old release."""
    with own_lab("o", Settings(nodes=0)) as lab:
        yield lab


def test_objects_of_an_old_release_are_kept_under_ours_and_under_upstreams_again(old_plane: Lab) -> None:
    install(old_plane, shown(OLD_RELEASE))
    old_plane.api.apply(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(OBJECTS.values())}))
    wanted = {plural: body["spec"] for plural, body in OBJECTS.items()}
    # what was stored as v1alpha2 by the old release is read so without a webhook
    versions = {plural: "v1alpha2" if plural == "ippools" else "v1beta1" for plural in OBJECTS}

    install(old_plane, OURS)
    definitions = old_plane.api.items("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert {item["metadata"]["name"] for item in definitions} >= {crd.name for crd in CRDS}
    assert specs(old_plane, versions) == wanted

    install(old_plane, (Path(SOURCE) / MANIFEST).read_text())
    assert specs(old_plane, versions) == wanted

    install(old_plane, OURS)
    assert specs(old_plane, versions) == wanted
