"""The agent's way to antrea-controller: where it is, whom to trust, and what it has computed for this Node.

Goes to a Pod of the Service itself, not to its ClusterIP, which may be ours to serve. A watch cannot be resumed: it
begins anew with all there is, and what was known before stays until that has been heard.
parity: pkg/agent/client/client.go, endpoint_resolver.go
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Protocol

import msgspec

from antrea.apis.controlplane import GROUP, VERSION, GroupMember
from antrea.apis.discovery import EndpointSlice
from antrea.errors import AntreaError, Unavailable
from antrea.facts.family import is_ipv6
from antrea.outside import klog
from antrea.outside.config_map import ConfigMap
from antrea.outside.kube import Kube, Pause
from antrea.outside.kube_access import Access, kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from antrea.engine import Facts
    from antrea.facts.fact import Fact

log = klog.logger(__name__)

SERVICE, CA = "antrea", "antrea-ca"
WATCH_SECONDS = 3600.0
"""After which a watch is begun anew, so that a lost change would not stay lost for ever."""


async def controller_access(kube: Kube, namespace: str, chance: Callable[[int], int]) -> Access:
    """One of the controller's Pods that are ready. Raises Unavailable, Refused."""
    found, _ = await kube.list(
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        EndpointSlice,
        {"labelSelector": f"kubernetes.io/service-name={SERVICE}"},
    )
    places = [
        (address, part.ports[0].port)
        for part in found
        for endpoint in part.endpoints
        if endpoint.conditions.ready and part.ports
        for address in endpoint.addresses
    ]
    if not places:
        raise Unavailable(f"ready endpoint of Service {namespace}/{SERVICE}: is antrea-controller running?")
    trusted = await kube.get(f"/api/v1/namespaces/{namespace}/configmaps/{CA}", ConfigMap)
    if trusted is None or not trusted.data.get("ca.crt"):
        raise Unavailable(f"CA of antrea-controller, which it writes into ConfigMap {namespace}/{CA}")
    address, port = places[chance(len(places))]
    host = f"[{address}]" if is_ipv6(address) else address
    return Access(
        url=f"https://{host}:{port}",
        ca_pem=trusted.data["ca.crt"],
        token=kube.access.token,
        token_file=kube.access.token_file,
        server_name=f"{SERVICE}.{namespace}.svc",
    )


class GroupKind(Protocol):
    """A kind of group that is watched: each member on this Node is a row of `fact`."""

    @property
    def plural(self) -> str: ...

    @property
    def fact(self) -> type[Fact]: ...

    @property
    def row(self) -> Callable[[str, GroupMember], Fact]: ...


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""


class _Told(msgspec.Struct, frozen=True):
    """A group, or how it changed; EgressGroupPatch has names of its own for the same."""

    metadata: _Meta = _Meta()
    name: str = ""
    members: tuple[GroupMember, ...] = msgspec.field(default=(), name="groupMembers")
    added: tuple[GroupMember, ...] = msgspec.field(default=(), name="addedGroupMembers")
    removed: tuple[GroupMember, ...] = msgspec.field(default=(), name="removedGroupMembers")
    egress_added: tuple[GroupMember, ...] | None = msgspec.field(default=None, name="AddedGroupMembers")
    egress_removed: tuple[GroupMember, ...] | None = msgspec.field(default=None, name="RemovedGroupMembers")

    @property
    def come(self) -> tuple[GroupMember, ...]:
        return (*self.added, *(self.egress_added or ()))

    @property
    def gone(self) -> tuple[GroupMember, ...]:
        return (*self.removed, *(self.egress_removed or ()))


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: _Told


class GroupFeed:
    """Feed of the rows of one kind of group, over one connection after the other."""

    def __init__(self, kind: GroupKind, node: str) -> None:
        self._kind = kind
        self._query = {"watch": "true", "fieldSelector": f"nodeName={node}"}
        self._path = f"/apis/{GROUP}/{VERSION}/{kind.plural}"
        self._rows: dict[str, dict[str, Fact]] = {}
        """Rows of each group by their keys."""
        self._heard_all = False

    async def run(self, kube: Kube, facts: Facts, opened: Callable[[], None]) -> None:
        """Until the watch ends. Raises Unavailable, Refused."""
        self._rows, self._heard_all = {}, False
        async for line in kube.stream(self._path, self._query, WATCH_SECONDS, opened):
            self.hear(facts, _decoded(line, self._path))

    def hear(self, facts: Facts, event: _Line) -> None:
        """Take in one event of the watch."""
        if event.type == "BOOKMARK":
            if not self._heard_all:
                self._heard_all = True
                facts.replace(self._kind.fact, [row for rows in self._rows.values() for row in rows.values()])
                facts.synced(self._kind.fact)
            return
        told = event.object
        group = told.metadata.name or told.name
        rows = self._rows.setdefault(group, {})
        if event.type == "MODIFIED":
            new, gone = self._members(group, told.come), {*self._members(group, told.gone)}
        else:
            new = self._members(group, told.members if event.type == "ADDED" else ())
            gone = {*rows}
        self._tell(facts, rows, new, gone - new.keys())
        if event.type == "DELETED":
            del self._rows[group]

    def _members(self, group: str, members: Iterable[GroupMember]) -> dict[str, Fact]:
        found = (self._kind.row(group, member) for member in members)
        return {row.key: row for row in found}

    def _tell(
        self, facts: Facts, rows: dict[str, Fact], new: Mapping[str, Fact], gone: Iterable[str]
    ) -> None:
        for key in gone:
            rows.pop(key, None)
            if self._heard_all:
                facts.drop(self._kind.fact, key)
        rows.update(new)
        for row in new.values() if self._heard_all else ():  # else told with the rest
            facts.put(row)


def _decoded(line: bytes, path: str) -> _Line:
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.DecodeError as why:
        raise Unavailable(f"{path}: answer is not understood: {why}") from why


class Controlplane:
    """Keeps watches of all `kinds` at the controller for as long as it runs."""

    def __init__(
        self, kube: Kube, node: str, kinds: Iterable[GroupKind], *, namespace: str, path: str = ""
    ) -> None:
        """`path` of a kubeconfig that leads to the controller, if it is not to be looked for by `kube`."""
        self._kube = kube
        self._namespace = namespace
        self._path = path
        self._feeds = [GroupFeed(kind, node) for kind in kinds]
        self.trouble = "not connected to antrea-controller yet"
        """Why there is no connection; empty while there is."""

    async def run(self, facts: Facts) -> None:
        """Until cancelled: connect, watch, and connect again."""
        pause = Pause(asyncio.sleep, random.uniform)
        while True:
            try:
                async with Kube(await self._access()) as controller:
                    await self._watch(controller, facts, pause)
                self.trouble = "antrea-controller has ended the watches"
            except AntreaError as why:
                if str(why) != self.trouble:
                    log.warning("No connection to antrea-controller", err=str(why))
                self.trouble = str(why)
            await pause.wait()

    async def _access(self) -> Access:
        if self._path:
            return kubeconfig(self._path)
        return await controller_access(self._kube, self._namespace, random.randrange)

    async def _watch(self, controller: Kube, facts: Facts, pause: Pause) -> None:
        """Until one of the watches ends. Raises Unavailable, Refused."""

        def opened() -> None:
            if self.trouble:
                log.info("Connected to antrea-controller", url=controller.access.url)
            self.trouble = ""
            pause.reset()

        watches = [asyncio.ensure_future(feed.run(controller, facts, opened)) for feed in self._feeds]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            for one in watches:
                one.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
