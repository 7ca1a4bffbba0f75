"""Whatever a schema lets through gets a verdict of our webhooks in time, and what they let through our programs can read."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from api_client import ApiClient
from crd_object import objects
from hypothesis import HealthCheck, given, settings

from antrea.apis.crd.definition import GROUP, Crd, Version, schema
from antrea.features.registry.crds import CRDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller_process import ControllerProcess

CORE = ("egresses", "clusternetworkpolicies", "externalippools")
KINDS = [
    pytest.param(crd, version, marks=[] if version.storage and crd.plural in CORE else pytest.mark.wide)
    for crd in CRDS
    for version in crd.versions
]
UNCONVERTED = re.compile(
    "conversion webhook for crd.antrea.io/v1alpha2, Kind=IPPool failed: "
    "(is empty, so there is no subnet|.* the original ipRanges have different subnet information)"
)
SECONDS = 9.0
"""In which the API server has to have an answer; a webhook that hangs costs it 10."""


@pytest.fixture(scope="module")
def client(controller: ControllerProcess) -> Iterator[ApiClient]:
    with contextlib.closing(ApiClient(controller.lab)) as opened:
        yield opened


@pytest.mark.parametrize(("crd", "version"), KINDS, ids=lambda one: getattr(one, "plural", None) or one.name)
def test_every_object_of_a_schema_gets_a_verdict_and_what_is_accepted_can_be_read(
    client: ApiClient, crd: Crd, version: Version
) -> None:
    within = "namespaces/default/" if crd.scope == "Namespaced" else ""
    path = f"/apis/{GROUP}/{version.name}/{within}{crd.plural}?dryRun=All"

    @settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(objects(schema(version)))
    def decided(generated: dict[str, Any]) -> None:
        metadata = {"name": version.only_name or "generated"}
        body = {"apiVersion": f"{GROUP}/{version.name}", "kind": crd.kind, **generated, "metadata": metadata}
        began = time.monotonic()
        answer = client.call("POST", path, body)
        assert time.monotonic() - began < SECONDS
        if answer.status == 500 and not version.storage:
            # the API server has no other way to tell a user that an old version cannot be converted, and why
            assert UNCONVERTED.search(answer.body["message"]), answer.body["message"]
        else:
            assert answer.status < 500, answer.body["message"]
        if answer.status < 300:
            msgspec.convert(answer.body, version.kind)

    decided()
