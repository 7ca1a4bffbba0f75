"""`antctl upgrade api-storage` against a real API server: afterwards a CRD can lose the version that objects were stored in."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

import pytest
import workstation

from antrea.errors import Unavailable
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller_process import ControllerProcess

    from lab.cluster import Lab

GROUP = "storage-test.crd.antrea.io"
NAME = f"things.{GROUP}"
SIZE = {"type": "object", "properties": {"size": {"type": "integer"}}}


def definition(*versions: str, stored: str) -> str:
    rows = [
        {
            "name": version,
            "served": True,
            "storage": version == stored,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SIZE}}},
        }
        for version in versions
    ]
    names = {"plural": "things", "kind": "Thing", "listKind": "ThingList", "singular": "thing"}
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": rows},
    }
    return json.dumps(body)


def versions(lab: Lab) -> list[str]:
    """In which the API server knows that objects are stored."""
    found = lab.api.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}")
    told: list[str] = found["status"]["storedVersions"]
    return told


def objects(lab: Lab) -> dict[str, tuple[Any, str]]:
    """Content and resourceVersion by name."""
    items = lab.api.items(f"/apis/{GROUP}/v2/things")
    return {item["metadata"]["name"]: (item["spec"], item["metadata"]["resourceVersion"]) for item in items}


def known(lab: Lab) -> bool:
    """A definition is established before kube-apiserver's discovery has it."""
    with contextlib.suppress(Unavailable):
        lab.api.kubectl("get", NAME)
        return True
    return False


@pytest.fixture
def outdated(controller: ControllerProcess) -> Iterator[Lab]:
    """Three objects stored as v1 of a CRD that stores v2 now."""
    lab = controller.lab
    lab.api.apply(definition("v1", "v2", stored="v1"))
    lab.api.kubectl("wait", "--for=condition=Established", "crd", NAME, "--timeout=50s")
    wait_for("kubectl to know the kind", lambda: known(lab), seconds=60)
    for number in range(3):
        thing = {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Thing",
            "metadata": {"name": f"t{number}", "namespace": "default"},
            "spec": {"size": number},
        }
        lab.api.apply(json.dumps(thing))
    lab.api.apply(definition("v1", "v2", stored="v2"))
    yield lab
    lab.api.kubectl("delete", "crd", NAME)


def test_upgrade_writes_objects_anew_so_that_the_old_version_can_go(outdated: Lab) -> None:
    before = objects(outdated)
    assert versions(outdated) == ["v1", "v2"]
    words = ("upgrade", "api-storage", f"--crds={NAME},pods.example.com")
    lines = [
        'Skip CRD "pods.example.com" which is not created by Antrea.',
        f'Upgrading 3 objects of CRD "{NAME}".',
        f'Successfully upgraded 3 objects of CRD "{NAME}".',
    ]

    assert workstation.run(outdated, *words, "--dry-run").stderr.splitlines() == lines
    assert (objects(outdated), versions(outdated)) == (before, ["v1", "v2"])

    assert workstation.run(outdated, *words).stderr.splitlines() == lines
    after = objects(outdated)
    assert {name: row[0] for name, row in after.items()} == {name: row[0] for name, row in before.items()}
    assert all(after[name][1] != before[name][1] for name in before)
    assert versions(outdated) == ["v2"]

    again = workstation.run(outdated, *words[:2], f"--crds={NAME}").stderr
    assert again == f'Skip upgrading CRD "{NAME}" since all stored objects are in the storage version.\n'
    # the API server would refuse this while something may be stored as v1
    outdated.api.apply(definition("v2", stored="v2"))
    assert objects(outdated) == after
    single = workstation.run(outdated, *words[:2], f"--crds={NAME}").stderr
    assert single == f'Skip upgrading CRD "{NAME}" since it only has one version.\n'
