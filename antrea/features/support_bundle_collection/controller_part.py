"""Effects of SupportBundleCollections in the controller: reads the Secrets that they name, and ends expired ones.

parity: pkg/util/auth/auth.go GetAuthConfigurationFromSecret
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.apis import controlplane as cp
from antrea.errors import AntreaError, Invalid
from antrea.features.framework.controller_part import ControllerPart
from antrea.features.framework.label import is_object_name
from antrea.features.support_bundle_collection.collection import (
    CollectedMachine,
    CollectedNode,
    CollectionTerms,
    NodeBundle,
    OpenCollection,
    is_listed,
)
from antrea.outside.kube.secret import secret_texts
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable

    from antrea.apis.crd.support_bundle import BundleServerAuthConfiguration
    from antrea.features.framework.controller_part import ControllerContext
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)
RETRY_SECONDS, MAX_PAUSE = 5.0, 300.0
# parity: controller.go minRetryDelay, maxRetryDelay
LOOK_SECONDS: Final = 60.0
"""Maximum seconds between two checks, in case the clock was set."""


class _Read(NamedTuple):
    """Last try to read the credentials of one collection."""

    wanted: BundleServerAuthConfiguration
    failed: int
    """Tries since the last success."""
    again: float | None
    """Time of the next try; None if they were read."""


class BundlePart(ControllerPart):
    """Part of all SupportBundleCollections."""

    def __init__(self, controller: ControllerContext, now: Callable[[], float] = time.time) -> None:
        """`now` is the time of the day: collections expire by dates of their objects."""
        self._facts, self._kube, self._now = controller.facts, controller.kube, now
        self._reads: dict[str, _Read] = {}
        """Tries by UID."""

    async def run(self) -> None:
        with self._facts.watch(OpenCollection, CollectedNode, CollectedMachine) as changed:
            while not is_listed(self._facts):
                changed.clear()
                await changed.wait()
        with self._facts.watch(OpenCollection) as changed:
            while True:
                changed.clear()
                again = await self._step()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(again):
                        await changed.wait()

    async def _step(self) -> float:
        """Write the terms of all collections. Return in how many seconds to check again."""
        rows = self._facts.all(OpenCollection)
        self._forget({row.uid for row in rows})
        waits = [LOOK_SECONDS]
        for row in rows:
            left = row.expires - self._now()
            if left > 0:
                waits += [left, await self._read(row)]
                continue
            before = self._facts.get(CollectionTerms, row.name)
            why = before.failure if before is not None and before.uid == row.uid else ""
            self._facts.put(CollectionTerms(row.name, row.uid, expired=True, failure=why))
        return max(0.0, min(waits))

    def _forget(self, uids: set[str]) -> None:
        """Drop collections that are gone or complete."""
        for terms in self._facts.all(CollectionTerms):
            if terms.uid not in uids:
                self._facts.drop(CollectionTerms, terms.key)
        for report in self._facts.all(NodeBundle):
            if report.collection not in uids:
                self._facts.drop(NodeBundle, report.key)
        self._reads = {uid: read for uid, read in self._reads.items() if uid in uids}

    async def _read(self, row: OpenCollection) -> float:
        """Read its credentials, if that is due. Return in how many seconds to check again."""
        wanted, now = row.spec.authentication, time.monotonic()
        last = self._reads.get(row.uid)
        if last is None or last.wanted != wanted:
            last = _Read(wanted, 0, now)
        if last.again is None:
            return LOOK_SECONDS
        if now < last.again:
            return last.again - now
        try:
            credentials_read = await credentials(self._kube, wanted)
        except AntreaError as error:
            pause = min(MAX_PAUSE, RETRY_SECONDS * (1 << min(last.failed, 6)))
            self._reads[row.uid] = _Read(wanted, last.failed + 1, now + pause)
            self._facts.put(CollectionTerms(row.name, row.uid, failure=str(error)))
            log.warning("Failed to read the credentials of a collection", name=row.name, err=str(error))
            return pause
        self._reads[row.uid] = _Read(wanted, 0, None)
        self._facts.put(CollectionTerms(row.name, row.uid, credentials=credentials_read))
        return LOOK_SECONDS


async def credentials(kube: Kube, wanted: BundleServerAuthConfiguration) -> cp.BundleServerAuthConfiguration:
    """Read the credentials of the Secret. Raises Invalid, Unavailable."""
    secret = wanted.auth_secret
    if secret is None:
        raise Invalid("spec.authentication.authSecret", "authentication is not specified")
    if not (is_object_name(secret.name) and is_object_name(secret.namespace)):
        raise Invalid("spec.authentication.authSecret", "must specify the name and the namespace of a Secret")
    where = (kube, secret.namespace, secret.name)
    match wanted.auth_type:
        case "BasicAuthentication":
            username, password = await secret_texts(*where, "username", "password")
            pair = cp.BasicAuthentication(username=username, password=password)
            return cp.BundleServerAuthConfiguration(basic_authentication=pair)
        case "BearerToken":
            (token,) = await secret_texts(*where, "token")
            return cp.BundleServerAuthConfiguration(bearer_token=token)
        case "APIKey":
            (key,) = await secret_texts(*where, "apikey")
            return cp.BundleServerAuthConfiguration(api_key=key)
    raise Invalid(
        "spec.authentication.authType",
        "unsupported authentication type: use BasicAuthentication, BearerToken or APIKey",
    )


PART = BundlePart
