"""Publish the CA of our serving certificate to its clients: in the ConfigMap, APIServices, webhooks and CRDs.

Each object is watched: an old or missing CA is corrected at once.
parity: pkg/apiserver/certificate/cacert_controller.go (which looks every 2 minutes)
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.core import CoreStruct, ObjectMeta
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.answer import Listed, Put
from antrea.outside.kube.client import PatchKind
from antrea.outside.kube.leadership import Leadership
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

CONFIG_MAP, KEY = "antrea-ca", "ca.crt"
SELECTOR = {"labelSelector": "app=antrea,served-by=antrea-controller"}
RETRY_SECONDS = 2.0


class Client(CoreStruct, frozen=True):
    """How kube-apiserver calls a webhook."""

    ca_bundle: str = ""


class _Hook(CoreStruct, frozen=True):
    name: str = ""
    client_config: Client = Client()


class _Conversion(CoreStruct, frozen=True):
    webhook: _Hook | None = None


class _Spec(CoreStruct, frozen=True):
    ca_bundle: str = ""
    conversion: _Conversion = _Conversion()


class CaObject(CoreStruct, frozen=True):
    """An object that holds our CA, of any of the kinds; what a kind has not is empty."""

    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[_Hook, ...] = ()
    spec: _Spec = _Spec()
    data: dict[str, str] = msgspec.field(default_factory=dict)


class Kind(msgspec.Struct, frozen=True):
    """Where such objects are; which of them are ours; what they hold; the patch that makes them hold a CA; how it is read.

    Others are left alone, whatever their labels: we have no right to change them.
    """

    path: str
    names: frozenset[str]
    holds: Callable[[CaObject], tuple[str, ...]]
    patch: Callable[[CaObject, str], dict[str, Any]]
    how: PatchKind = PatchKind.MERGE


def _encoded(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()


def _hook_patch(place: CaObject, pem: str) -> dict[str, Any]:
    bundle = {"caBundle": _encoded(pem)}
    return {"webhooks": [{"name": hook.name, "clientConfig": bundle} for hook in place.webhooks]}


def _crd_patch(_: CaObject, pem: str) -> dict[str, Any]:
    client = {"clientConfig": {"caBundle": _encoded(pem)}}
    return {"spec": {"conversion": {"webhook": client}}}


def _decoded(*bundles: str) -> tuple[str, ...]:
    return tuple(base64.b64decode(bundle).decode(errors="replace") for bundle in bundles)


_WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
KINDS = (
    Kind(
        "/apis/apiregistration.k8s.io/v1/apiservices",
        frozenset({"v1alpha1.stats.antrea.io", "v1beta1.system.antrea.io", "v1beta2.controlplane.antrea.io"}),
        lambda place: _decoded(place.spec.ca_bundle),
        lambda _, pem: {"spec": {"caBundle": _encoded(pem)}},
    ),
    *(
        Kind(
            f"{_WEBHOOKS}/{plural}",
            frozenset(names),
            lambda place: _decoded(*(hook.client_config.ca_bundle for hook in place.webhooks)),
            _hook_patch,
            PatchKind.STRATEGIC,
        )
        for plural, names in (
            ("mutatingwebhookconfigurations", ("crdmutator.antrea.io", "labelsmutator.antrea.io")),
            ("validatingwebhookconfigurations", ("crdvalidator.antrea.io",)),
        )
    ),
    Kind(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        frozenset({"egresses.crd.antrea.io", "externalippools.crd.antrea.io", "ippools.crd.antrea.io"}),
        lambda place: (
            _decoded(place.spec.conversion.webhook.client_config.ca_bundle)
            if place.spec.conversion.webhook
            else ()
        ),
        _crd_patch,
    ),
)


class CaPublisher:
    """`trust` sets the CA; `run` keeps it published, or leaves that to the leader; `settled` waits until it is."""

    def __init__(self, kube: Kube, namespace: str, lead: Leadership | None = None) -> None:
        """`lead` None: there are no other replicas."""
        self._kube = kube
        self.lead = lead or Leadership()
        self._maps = f"/api/v1/namespaces/{namespace}/configmaps"
        only = {"fieldSelector": f"metadata.name={CONFIG_MAP}"}
        config_map = Kind(
            self._maps,
            frozenset({CONFIG_MAP}),
            lambda place: (place.data.get(KEY, ""),),
            lambda _, pem: {"data": {KEY: pem}},
        )
        self._kinds: dict[Kind, Mapping[str, str]] = {config_map: only, **dict.fromkeys(KINDS, SELECTOR)}
        self._config_map = config_map
        self._seen: dict[Kind, dict[str, CaObject]] = {}
        self._pem = ""
        self._new = ""
        """Authority that has to be known everywhere before its certificate is served."""
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()
        self.lead.listeners.append(self._changed.set)

    def trust(self, pem: str, *, new: str = "") -> None:
        """Publish this CA bundle from now on; `new` is the part of it that was not published before."""
        if pem != self._pem:
            self._pem, self._new = pem, new or pem
            self._settled.clear()
            self._changed.set()

    async def settled(self) -> None:
        """Returns once every place that is known holds the bundle."""
        await self._settled.wait()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, query in self._kinds.items():
                group.create_task(self._watch(kind, query))
            group.create_task(self._publish())

    async def _watch(self, kind: Kind, query: Mapping[str, str]) -> None:
        async for change in self._kube.watch(kind.path, CaObject, query):
            if isinstance(change, Listed):
                named = {place.metadata.name: place for place in change.objects}
                self._seen[kind] = {name: place for name, place in named.items() if name in kind.names}
            elif change.object.metadata.name not in kind.names:
                continue
            elif isinstance(change, Put):
                self._seen[kind][change.object.metadata.name] = change.object
            else:
                self._seen[kind].pop(change.object.metadata.name, None)
            self._changed.set()

    async def _publish(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self._pem:
                continue
            if not self.lead.leads():
                if self._is_known():
                    self._settled.set()
                continue
            try:
                if await self._put_right() and self._seen.keys() == self._kinds.keys():
                    self._settled.set()
            except (Refused, Unavailable) as error:
                log.warning("Failed to publish the CA everywhere", err=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._changed.set()

    def _is_known(self) -> bool:
        """Whether the leader has published what is new, with whatever else."""
        held = [
            pem
            for kind, places in self._seen.items()
            for place in places.values()
            for pem in kind.holds(place)
        ]
        there = self._seen.keys() == self._kinds.keys() and bool(self._seen[self._config_map])
        return there and all(self._new in pem for pem in held)

    async def _put_right(self) -> bool:
        """Write where it is missing; whether that was nowhere. Raises Refused, Unavailable."""
        pem, right = self._pem, True
        for kind, places in list(self._seen.items()):
            for name, place in list(places.items()):
                if set(kind.holds(place)) <= {pem}:
                    continue
                right = False
                log.info("Publishing the CA", path=f"{kind.path}/{name}")
                await self._kube.patch(f"{kind.path}/{name}", kind.patch(place, pem), kind.how)
        if self._seen.get(self._config_map) == {}:
            right = False
            meta = {"name": CONFIG_MAP, "labels": {"app": "antrea"}}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {KEY: pem}}
            await self._kube.create_named(f"{self._maps}/{CONFIG_MAP}", body)
            # ahead of the watch, so that it is not made twice
            self._seen[self._config_map] = {CONFIG_MAP: CaObject(data={KEY: pem})}
            self._changed.set()
        return right
