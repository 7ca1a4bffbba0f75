"""OpenAPI documents: what is Kubernetes' own is as Kubernetes has it, and every reference leads somewhere."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from antrea.features.registry.api_resources import RESOURCES
from antrea.features.registry.openapi_names import definition_name
from antrea.outside.apiserver.openapi import KUBERNETES, documents

DOCUMENTS = documents(RESOURCES, definition_name, "v1")
META = "io.k8s.apimachinery.pkg.apis.meta.v1"


def test_definitions_of_kubernetes_are_its_own_in_v2() -> None:
    ours = json.loads(DOCUMENTS["/openapi/v2"])["definitions"]
    assert {f"{META}.ObjectMeta", f"{META}.ListMeta", f"{META}.Time"} <= KUBERNETES.keys()
    assert {name: ours[name] for name in KUBERNETES} == {
        name: json.loads(bytes(text)) for name, text in KUBERNETES.items()
    }


def test_definitions_of_kubernetes_wrap_their_references_in_v3() -> None:
    path = "/openapi/v3/apis/controlplane.antrea.io/v1beta2"
    meta = json.loads(DOCUMENTS[path])["components"]["schemas"][f"{META}.ObjectMeta"]["properties"]
    assert meta["creationTimestamp"]["allOf"] == [{"$ref": f"#/components/schemas/{META}.Time"}]
    assert meta["ownerReferences"]["items"] == {"$ref": f"#/components/schemas/{META}.OwnerReference"}


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if path != "/openapi/v3"])
def test_every_reference_leads_to_a_definition(path: str) -> None:
    text = DOCUMENTS[path].decode()
    document: dict[str, Any] = json.loads(text)
    defined = document.get("definitions") or document["components"]["schemas"]
    where = "definitions" if "definitions" in document else "components/schemas"
    assert set(re.findall(r'"\$ref":"#/([^"]+)"', text)) <= {f"{where}/{name}" for name in defined}
