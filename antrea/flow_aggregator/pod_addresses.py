"""Pods of the cluster by their addresses; a deleted Pod is remembered for a while."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from antrea.apis.core import Pod
from antrea.outside.kube.answer import Drop, Listed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from antrea.outside.kube.client import Kube

PATH: Final = "/api/v1/pods"
KEPT_SECONDS: Final = 300.0
"""For which a Pod that is gone is known: its last records come after it."""
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")
ENDED: Final = ("Succeeded", "Failed")


class PodName(NamedTuple):
    """A Pod and its Node."""

    namespace: str
    name: str
    node: str
    labels: str
    """Labels as JSON, as Go writes it; empty unless they are requested."""
    uid: str


class PodAddresses:
    """Follows all Pods but those in the network of their Node."""

    def __init__(self, *, labels: bool) -> None:
        """`labels`: those of Pods are asked for."""
        self._labels = labels
        self._pods: dict[str, PodName] = {}
        self.listed = asyncio.Event()
        """Set once all Pods are known."""

    def get(self, address: str) -> PodName | None:
        """The Pod with this address now, or the last one that had it."""
        return self._pods.get(address)

    async def run(self, kube: Kube) -> None:
        """Run until cancelled."""
        async for change in kube.watch(PATH, Pod):
            if isinstance(change, Listed):
                self._take_all(change.objects)
                self.listed.set()
            elif isinstance(change, Drop) or change.object.status.phase in ENDED:
                self._forget_later(change.object)
            else:
                self._add(change.object)

    def _take_all(self, pods: Iterable[Pod]) -> None:
        before, self._pods = self._pods, {}
        for pod in pods:
            if pod.status.phase not in ENDED:
                self._add(pod)
        for address, gone in before.items():
            if address not in self._pods:
                self._pods[address] = gone
                self._expire(address, gone)

    def _add(self, pod: Pod) -> None:
        for address in _addresses(pod):
            self._pods[address] = self._named(pod)

    def _forget_later(self, pod: Pod) -> None:
        for address in _addresses(pod):
            self._expire(address, self._named(pod))

    def _expire(self, address: str, gone: PodName) -> None:
        def forget() -> None:
            # another Pod may have the address by then
            if self._pods.get(address) == gone:
                del self._pods[address]

        asyncio.get_running_loop().call_later(KEPT_SECONDS, forget)

    def _named(self, pod: Pod) -> PodName:
        meta = pod.metadata
        labels = _ENCODER.encode(meta.labels).decode() if self._labels else ""
        return PodName(meta.namespace, meta.name, pod.spec.node_name, labels, meta.uid)


def _addresses(pod: Pod) -> tuple[str, ...]:
    return () if pod.spec.host_network else tuple(pod_ip.ip for pod_ip in pod.status.pod_ips)
