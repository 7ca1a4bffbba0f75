"""Our CustomResourceDefinitions are upstream's ($ANTREA_SRC) but for what is listed here with its reason."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from antrea.apis.crd.definition import Crd, manifest
from antrea.features.registry.crds import CRDS

if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCE = os.environ.get("ANTREA_SRC", "")
FOLDER = "build/charts/antrea/crds"
OLD_RELEASE = "v1.15.1"
"""The last release whose v1alpha2 of egresses and pools the documents of our users speak of."""
pytestmark = pytest.mark.skipif(not SOURCE, reason="ANTREA_SRC names no checkout of upstream")
Leaves = dict[str, Any]


class Difference(NamedTuple):
    """Paths of leaves that differ on purpose; `paths` is a regular expression for the whole path."""

    kinds: frozenset[str]
    paths: str
    why: str


def difference(kinds: str, paths: str, why: str) -> Difference:
    return Difference(frozenset(kinds.split()), paths, why)


SCHEMA = "versions/v1[a-z0-9]+/schema/openAPIV3Schema"
MATCH_LABELS = r".*[sS]elector/properties/matchLabels/(type|additionalProperties/.*|x-kubernetes-preserve-.*)"
DESTINATIONS = difference(
    "Egress",
    r".*/properties/spec/properties/destinations/.*",
    "a field of our own: the only destinations that the address is for",
)
ADDRESSES = difference(
    "Egress",
    r".*/properties/status/properties/addresses/.*",
    "where each of several addresses is; upstream refuses the lists that have them",
)
SURVIVE = difference(
    "Egress",
    r".*/properties/(status/properties/portBlocks/.*|spec/properties/survive/(type|enum))",
    "whether connections outlive a gateway, and the source ports of each Pod on each address, fields of our own",
)
LISTS = difference(
    "Egress",
    r".*/properties/spec/properties/(egressIPs|externalIPPools)/minItems",
    "an Egress whose list is empty has no address, which its user should hear at once; upstream refuses all lists",
)
GATEWAY = difference(
    "ExternalIPPool",
    r".*/properties/status/properties/conditions/.*",
    "whether the pool's gateway answers in its VLAN, a field of our own",
)
DIFFERENCES = [
    difference(
        "ClusterNetworkPolicy NetworkPolicy",
        r".*/properties/status/properties/realizedGeneration/type",
        "a field of our own: the last generation that all Nodes have realized",
    ),
    difference(
        "ClusterNetworkPolicy NetworkPolicy",
        r"spec/versions/v1beta1/additionalPrinterColumns(/Audited/.*)?",
        "a column of our own, which -o wide shows: whether the policy is audited",
    ),
    DESTINATIONS,
    SURVIVE,
    LISTS,
    GATEWAY,
    difference(
        "Traceflow",
        r".*/observations/items/properties/(table|flow|explanation|egressPorts)/type",
        "fields of our own: where in the switch it was decided, and why",
    ),
    difference(
        "AntreaNodeConfig BGPPolicy Group SupportBundleCollection TrafficControl",
        f"spec/{SCHEMA}/{MATCH_LABELS}",
        "upstream keeps anything under matchLabels here, also what is no text and cannot be decoded later; "
        "labels are texts, as its other kinds say",
    ),
    difference(
        "Group",
        f"spec/{SCHEMA}/.*/matchExpressions/items/properties/values/items/pattern",
        "a value that no label can have selects nothing; ClusterGroup refuses it, so Group does too",
    ),
    difference(
        "BGPPolicy",
        f"spec/{SCHEMA}/.*/advertisements/properties/(pod|egress)/properties",
        "an empty map of properties says nothing",
    ),
    difference(
        "BGPPolicy",
        f"spec/{SCHEMA}/.*/bfdPeers/.*|spec/{SCHEMA}/.*/bgpPeers/items/properties/"
        "(bfd|communities|localPreference|advertisedNetworks|externalIPPools|importedRoutes|(holdTime|keepaliveInterval|connectRetry|idleHoldTimeAfterReset)Seconds|gracefulRestartEnabled)/.*",
        "fields of our own: BFD with routers, timers of sessions, and what is advertised and imported",
    ),
    difference(
        "BGPPolicy",
        f"spec/{SCHEMA}/properties/status/.*|spec/versions/v1alpha1/subresources/status",
        "a status of our own: how many Nodes follow the policy",
    ),
    difference(
        "ExternalNode",
        f"spec/{SCHEMA}/.*/interfaces/maxItems",
        "a machine may have several interfaces",
    ),
    difference(
        "ExternalNode",
        f"spec/{SCHEMA}/.*/interfaces/required",
        "stands beside the items of a list, where it has no effect",
    ),
    difference(
        "Egress ExternalIPPool",
        r"spec/versions/v1alpha2/.*|spec/versions|spec/conversion/.*|metadata/labels/served-by",
        "v1alpha2, which upstream served up to v1.15, is served and converted",
    ),
    ADDRESSES,
    difference(
        "AntreaAgentInfo AntreaControllerInfo",
        f"spec/{SCHEMA}/properties/(agent|controller)Conditions/items/properties/type/(enum|pattern)",
        "conditions of our own: what is refused, and what packets do not reach",
    ),
]
OLD_DIFFERENCES = [
    ADDRESSES,
    LISTS,
    GATEWAY,
    DESTINATIONS,
    SURVIVE,
    difference(
        "Egress ExternalIPPool",
        MATCH_LABELS,
        "upstream kept anything under matchLabels; main's v1beta1, which is stored, does not",
    ),
]


def leaves(node: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Path and value of everything but descriptions of the schema; lists of named things are keyed by name."""
    below = f"{path}/" if path else ""
    if isinstance(node, dict) and node:
        for name, child in node.items():
            if name != "description" or path.endswith("/properties"):
                yield from leaves(child, below + str(name))
    elif isinstance(node, list) and node and all(isinstance(item, dict) and "name" in item for item in node):
        yield path, [item["name"] for item in node]
        for item in node:
            yield from leaves(item, below + item["name"])
    else:
        yield path, sorted(node, key=str) if path.endswith("required") else node


def upstream(crd: Crd) -> Leaves:
    text = (Path(SOURCE) / FOLDER / crd.file).read_text(encoding="utf-8")
    return dict(leaves(yaml.safe_load(text)))


def differing(ours: Leaves, theirs: Leaves) -> dict[str, tuple[Any, Any]]:
    """By path: what we have and what upstream has."""
    absent = "(absent)"
    return {
        path: (ours.get(path, absent), theirs.get(path, absent))
        for path in sorted(ours.keys() | theirs.keys())
        if ours.get(path, absent) != theirs.get(path, absent)
    }


def unexplained(kind: str, found: dict[str, Any], known: list[Difference]) -> dict[str, Any]:
    rules = [rule.paths for rule in known if kind in rule.kinds]
    return {path: pair for path, pair in found.items() if not any(re.fullmatch(rule, path) for rule in rules)}


def kind_of(crd: Crd) -> str:
    return crd.kind


def test_every_kind_of_upstream_is_declared_under_its_file_name() -> None:
    assert sorted(crd.file for crd in CRDS) == sorted(
        path.name for path in (Path(SOURCE) / FOLDER).glob("*.yaml")
    )


@pytest.mark.parametrize("crd", CRDS, ids=kind_of)
def test_a_definition_is_upstreams_but_for_what_is_listed(crd: Crd) -> None:
    found = differing(dict(leaves(manifest(crd))), upstream(crd))
    assert unexplained(crd.kind, found, DIFFERENCES) == {}


@pytest.mark.parametrize("rule", DIFFERENCES, ids=lambda rule: rule.paths)
def test_a_listed_difference_exists_in_each_of_its_kinds(rule: Difference) -> None:
    for crd in CRDS:
        if crd.kind in rule.kinds:
            found = differing(dict(leaves(manifest(crd))), upstream(crd))
            assert any(re.fullmatch(rule.paths, path) for path in found), crd.kind
    assert rule.kinds <= {crd.kind for crd in CRDS}


@pytest.mark.parametrize(
    "crd", [crd for crd in CRDS if crd.kind in ("Egress", "ExternalIPPool")], ids=kind_of
)
def test_the_older_version_is_that_of_the_last_release_that_served_it(crd: Crd) -> None:
    command = ["git", "-C", SOURCE, "show", f"{OLD_RELEASE}:{FOLDER}/{crd.file}"]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    if shown.returncode:
        pytest.skip(f"the checkout has no tag {OLD_RELEASE}")
    (ours,) = [v for v in manifest(crd)["spec"]["versions"] if v["name"] == "v1alpha2"]
    (theirs,) = [v for v in yaml.safe_load(shown.stdout)["spec"]["versions"] if v["name"] == "v1alpha2"]
    found = differing(dict(leaves(ours)), dict(leaves(theirs)))
    assert unexplained(crd.kind, found, OLD_DIFFERENCES) == {}
    assert found
