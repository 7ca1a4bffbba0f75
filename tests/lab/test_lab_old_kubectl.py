"""The kubectl of Debian 12, v1.20, shows and explains all that today's does."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from antrea.apis.crd.definition import GROUP
from antrea.errors import Unavailable
from antrea.features.registry.api_resources import RESOURCES
from antrea.features.registry.crds import CRDS
from lab import control_plane as plane
from lab import namespace
from lab.process import run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _pytest.mark.structures import ParameterSet
    from controller_process import ControllerProcess

    from antrea.apis.crd.definition import Crd
    from lab.cluster import Lab

PACKAGE = "kubernetes-client"
OBJECTS = (
    {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "ExternalIPPool",
        "metadata": {"name": "old"},
        "spec": {"ipRanges": [{"cidr": "10.77.0.0/24"}], "nodeSelector": {}},
    },
    {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "Egress",
        "metadata": {"name": "old"},
        "spec": {"appliedTo": {"podSelector": {}}, "externalIPPool": "old", "egressIP": "10.77.0.7"},
    },
    {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "ClusterGroup",
        "metadata": {"name": "old"},
        "spec": {"podSelector": {"matchLabels": {"a": "b"}}},
    },
)
CORE = (f"egresses.v1beta1.{GROUP}", "antreaagentinfos.v1beta1.crd.antrea.io", "Egress")
CRD_NAMES = [f"{crd.plural}.{version.name}.{GROUP}" for crd in CRDS for version in crd.versions]
API_NAMES = [
    f"{row.plural}.{row.version}.{row.group}" for row in RESOURCES if {"get", "list"} <= set(row.verbs)
]


def wide(value: object, name: str) -> ParameterSet:
    """A parameter of that name, of the wide tier unless it is of the core."""
    return pytest.param(value, id=name, marks=[] if name in CORE else pytest.mark.wide)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Debian's program, unpacked and not installed: its place may be taken by another."""
    place = tmp_path_factory.mktemp(PACKAGE)
    try:
        download: list[str | Path] = ["sh", "-c", 'cd "$0" && apt-get download -q "$1"', place, PACKAGE]
        try:
            run(download)
        except Unavailable:
            run(["apt-get", "update", "-q"])  # a machine whose lists of packages are gone or old
            run(download)
        run(["dpkg", "-x", *place.glob("*.deb"), place])
    except Unavailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{PACKAGE} cannot be had: {error}")
    return place / "usr/bin/kubectl"


@pytest.fixture(scope="module")
def filled(controller: ControllerProcess) -> Iterator[Lab]:
    kubectl = controller.lab.api.kubectl
    for body in OBJECTS:
        controller.lab.api.apply(json.dumps(body))
    wait_for("the default Tiers", lambda: "baseline" in kubectl("get", "tiers"), seconds=60)
    used = ("get", "externalippool", "old", "-o", "jsonpath={.status.usage.used}")
    wait_for("the count of the pool, which is shown", lambda: kubectl(*used) == "1", seconds=60)
    yield controller.lab
    for body in reversed(OBJECTS):
        kubectl("delete", str(body["kind"]), "old")


def asked(lab: Lab, old: Path, *words: str) -> str:
    netns = namespace.path(lab.record, lab.topology.control_plane.name)
    config = plane.kubeconfig(lab.record)
    return run(namespace.inside(netns, [old, f"--kubeconfig={config}", *words]))


def test_it_is_the_old_one(filled: Lab, old: Path) -> None:
    assert 'GitVersion:"v1.20.' in asked(filled, old, "version", "--client")


@pytest.mark.parametrize("name", [wide(name, name) for name in CRD_NAMES + API_NAMES])
def test_an_old_kubectl_shows_the_same_table(filled: Lab, old: Path, name: str) -> None:
    words = ("get", name, "-A", "-o", "wide")
    assert cells(asked(filled, old, *words)) == cells(filled.api.kubectl(*words))


def cells(table: str) -> list[list[str]]:
    """Of every row, without the age, which the two may tell a second apart."""
    rows = [line.split() for line in table.splitlines()]
    return [[cell for cell in row if not re.fullmatch(r"(\d+[dhms])+", cell)] for row in rows]


@pytest.mark.parametrize("crd", [wide(crd, crd.kind) for crd in CRDS])
def test_an_old_kubectl_explains_the_same_fields(filled: Lab, old: Path, crd: Crd) -> None:
    version = next(one for one in crd.versions if one.storage)
    words = ("explain", crd.plural, f"--api-version={GROUP}/{version.name}", "--recursive")
    told = fields(asked(filled, old, *words))
    assert told
    assert told == fields(filled.api.kubectl(*words))


def fields(text: str) -> list[str]:
    """Names, in their order."""
    lines = text.splitlines()
    below = lines[lines.index("FIELDS:") + 1 :]
    return [line.split()[0] for line in below if "\t<" in line]
