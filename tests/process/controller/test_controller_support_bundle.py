"""The part of SupportBundleCollections in a controller that has just started, on a busy machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from certificate_world import api_server, until
from sftp_server import PASSWORD, secret

from antrea.apis.crd.support_bundle import (
    BundleFileServer,
    BundleServerAuthConfiguration,
    SecretReference,
    SupportBundleCollectionSpec,
)
from antrea.config.controller import ControllerConfig
from antrea.engine import Facts
from antrea.engine.core.time_slice import SLICE
from antrea.features.framework.controller_part import ControllerContext
from antrea.features.support_bundle_collection.collection import (
    GATE,
    CollectedMachine,
    CollectedNode,
    CollectionTerms,
    OpenCollection,
)
from antrea.features.support_bundle_collection.controller_part import BundlePart
from antrea.outside.kube.leadership import Leadership

if TYPE_CHECKING:
    import pytest

SPEC = SupportBundleCollectionSpec(
    BundleFileServer("sftp://192.0.2.9/upload"),
    BundleServerAuthConfiguration("BasicAuthentication", SecretReference("file-server", "ops")),
)


async def test_a_collection_begins_though_the_last_list_ends_while_a_pass_takes_in_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is written after that list which would have the controller look once more."""
    monkeypatch.setattr(SLICE, "end", SLICE.end)
    facts = Facts()
    async with api_server({"/api/v1/namespaces/ops/secrets/file-server": secret()}) as (_, kube):
        context = ControllerContext(
            config=ControllerConfig(), gates=frozenset({GATE}), facts=facts, kube=kube, lead=Leadership(), namespace="kube-system"
        )  # fmt: skip
        running = asyncio.create_task(BundlePart(context).run())
        await asyncio.sleep(0)
        facts.put(OpenCollection("all", "u1", "2999-01-01T00:00:00Z", SPEC))
        facts.put(CollectedNode("n1"))
        facts.synced(OpenCollection)
        facts.synced(CollectedNode)
        SLICE.begin(0.0)  # every step of the pass pauses
        for count, _ in enumerate(facts.drain()):
            if not count:
                facts.synced(CollectedMachine)
            await asyncio.sleep(0)
        await until(lambda: facts.get(CollectionTerms, "all"), 5)
        terms = facts.get(CollectionTerms, "all")
        assert terms is not None
        assert terms.credentials is not None
        assert terms.credentials.basic_authentication is not None
        assert terms.credentials.basic_authentication.password == PASSWORD
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
