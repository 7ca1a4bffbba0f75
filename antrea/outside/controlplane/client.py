"""The agent's client of antrea-controller: its address, its CA, and watches of what it has computed for this Node.

Connects to a Pod of the Service itself, not to its ClusterIP, which this agent may have to serve. A watch cannot be resumed:
it begins with the full state again, and earlier rows stay until that is complete.
parity: pkg/agent/client/client.go, endpoint_resolver.go
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from typing import TYPE_CHECKING, Protocol

import msgspec

from antrea.apis.controlplane import GROUP, PROCESSED, VERSION
from antrea.apis.core import Status
from antrea.apis.discovery import EndpointSlice
from antrea.decoding import decode_json, guarded
from antrea.errors import AntreaError, Invalid, Refused, Unavailable
from antrea.facts.family import is_ipv6
from antrea.outside.kube.access import Access
from antrea.outside.kube.answer import Odd, odd_object
from antrea.outside.kube.backoff import Backoff
from antrea.outside.kube.client import Kube
from antrea.outside.kube.config_map import ConfigMap
from antrea.outside.kube.kubeconfig import kubeconfig
from antrea.outside.kube.odd_object import OddObjects
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from antrea.engine import Facts
    from antrea.facts.fact import Fact

log = klog.logger(__name__)

NOTHING, ALL = -1.0, math.inf
SERVICE, CA = "antrea", "antrea-ca"
WATCH_SECONDS = 3600.0
MAX_PAUSE = 2.5
"""Seconds, stretched up to twofold, until the next try: within 5 s of its return agents are connected, as upstream's are."""
"""After which a watch is begun anew, so that a lost change would not stay lost for ever."""


async def controller_access(kube: Kube, namespace: str, chance: Callable[[int], int]) -> Access:
    """One of the controller's Pods that are ready. Raises Unavailable, Refused."""
    services, _ = await kube.list(
        f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices",
        EndpointSlice,
        {"labelSelector": f"kubernetes.io/service-name={SERVICE}"},
    )
    places = [
        (address, part.ports[0].port)
        for part in services
        for endpoint in part.endpoints or ()
        if endpoint.conditions.ready and part.ports
        for address in endpoint.addresses
    ]
    if not places:
        raise Unavailable(
            f"Service {namespace}/{SERVICE} has no ready endpoint: is antrea-controller running?"
        )
    trusted = await kube.get(f"/api/v1/namespaces/{namespace}/configmaps/{CA}", ConfigMap)
    if trusted is None or not trusted.data.get("ca.crt"):
        raise Unavailable(f"ConfigMap {namespace}/{CA} has no CA yet: antrea-controller writes it")
    address, port = places[chance(len(places))]
    host = f"[{address}]" if is_ipv6(address) else address
    return Access(
        url=f"https://{host}:{port}",
        ca_pem=trusted.data["ca.crt"],
        token=kube.access.token,
        token_file=kube.access.token_file,
        server_name=f"{SERVICE}.{namespace}.svc",
        impersonate=kube.access.impersonate,
        proxy_url=kube.access.proxy_url,
    )


class WatchEvent(Protocol):
    """One event, as antrea.features.framework.controlplane_watch reads it."""

    @property
    def name(self) -> str: ...

    @property
    def added(self) -> list[Fact]: ...

    @property
    def removed(self) -> list[Fact]: ...


class WatchedKind(Protocol):
    """Kind to watch, and the meaning of its events."""

    @property
    def plural(self) -> str: ...

    @property
    def facts(self) -> tuple[type[Fact], ...]: ...

    @property
    def saved(self) -> bool: ...

    def read(self, raw: msgspec.Raw, /) -> WatchEvent: ...


class _Notes(msgspec.Struct, frozen=True):
    annotations: dict[str, str] = {}


class _Bookmark(msgspec.Struct, frozen=True):
    metadata: _Notes = _Notes()


class _Line(msgspec.Struct, frozen=True):
    type: str
    object: msgspec.Raw


Key = tuple[type["Fact"], str]


class WatchFeed:
    """Feed of the rows of one kind, over one connection after the other."""

    def __init__(self, kind: WatchedKind, node: str) -> None:
        self._kind = kind
        self._query = {
            "watch": "true",
            "fieldSelector": f"nodeName={node}",
            "allowWatchBookmarks": "true",
        }
        self._path = f"/apis/{GROUP}/{VERSION}/{kind.plural}"
        self._rows: dict[str, dict[Key, Fact]] = {}
        """Rows of each object."""
        self._before: dict[str, dict[Key, Fact]] = {}
        """Rows of the connection before, until this one is complete."""
        self.odd = OddObjects(kind.plural)
        self.whole = False
        """The initial state is complete, and written as facts."""
        self.listed = False
        """The initial state was received."""
        self.processed = NOTHING
        """The resourceVersion of this Node's Pods up to which this watch is complete."""
        self.heard: Callable[[], None] = lambda: None
        """Called after each event."""
        self.together: list[WatchFeed] = [self]
        """Watches that write their initial state together: a policy is incomplete without its groups."""

    async def run(self, kube: Kube, facts: Facts, opened: Callable[[], None]) -> None:
        """Watch until the watch ends. Raises Unavailable, Refused."""
        self._before = {**self._before, **self._rows}
        self._rows, self.whole, self.listed = {}, False, False
        async for line in kube.stream(self._path, self._query, WATCH_SECONDS, opened):
            try:
                event = decode_json(line, _Line, self._path)
            except Invalid as error:
                raise Unavailable(f"{self._path}: answer is not understood: {error.why}") from error
            self._apply(facts, event)

    def _apply(self, facts: Facts, event: _Line) -> None:
        """Take in one event of the watch. Raises Unavailable for what the server itself gives up with."""
        if event.type == "ERROR":
            raise Unavailable(f"{self._path}: {_message(event.object)}")
        if event.type == "BOOKMARK":
            try:
                processed = guarded(self._path, _processed, event.object)
            except Invalid as error:
                raise Unavailable(f"{self._path}: answer is not understood: {error.why}") from error
            self.listed, self.processed = True, processed
            if not self.whole and all(feed.listed for feed in self.together):
                for feed in self.together:
                    feed.tell_all(facts)
        else:
            self._change(facts, event)
        self.heard()

    def _change(self, facts: Facts, event: _Line) -> None:
        try:
            watch_event = self._kind.read(event.object)
        except Exception as error:  # noqa: BLE001 (one object that cannot be read leaves the others)
            if event.type == "DELETED":
                self._forget(facts, odd_object(event.object, str(error)))
            else:
                self._keep(event, error)
            return
        self.odd.clear(f"/{watch_event.name}")
        rows = self._rows.setdefault(watch_event.name, {})
        new = {} if event.type == "DELETED" else _by_key(watch_event.added)
        gone = {*_by_key(watch_event.removed)} if event.type == "MODIFIED" else {*rows}
        self._replace(facts, rows, new, gone - new.keys())
        if event.type == "DELETED":
            del self._rows[watch_event.name]

    def _forget(self, facts: Facts, odd: Odd) -> None:
        """It is gone, whatever it was."""
        self._replace(facts, {}, {}, self._rows.pop(odd.name, {}))
        self.odd.clear(odd.full_name)

    def _keep(self, event: _Line, why: Exception) -> None:
        """One object that cannot be read is its own trouble: what was last read of it stands.

        Raises Unavailable, once, for a change of a known one, which may be a part: then all is asked for anew.
        """
        odd = odd_object(event.object, f"{type(why).__name__}: {why}")
        known = odd.full_name in self.odd
        self.odd.note(odd)
        if event.type == "MODIFIED" and not known:
            raise Unavailable(f"{self._path}: a change of {odd.name!r} is not understood: {why}") from why
        if rows := self._before.get(odd.name):
            self._rows.setdefault(odd.name, rows)

    @property
    def rows(self) -> Iterator[Fact]:
        """All of its rows."""
        return (row for rows in self._rows.values() for row in rows.values())

    def tell_all(self, facts: Facts) -> None:
        """The initial state is complete."""
        self.whole, self._before = True, {}
        for kind in self._kind.facts:
            row_groups = (rows.items() for rows in self._rows.values())
            facts.replace(kind, [row for rows in row_groups for (of, _), row in rows if of is kind])
            facts.synced(kind)

    def _replace(
        self, facts: Facts, rows: dict[Key, Fact], new: Mapping[Key, Fact], gone: Iterable[Key]
    ) -> None:
        for key in gone:
            rows.pop(key, None)
            if self.whole:
                facts.drop(*key)
        rows.update(new)
        for row in new.values() if self.whole else ():  # else told with the rest
            facts.put(row)


def _message(status: msgspec.Raw) -> str:
    try:
        return decode_json(status, Status, "status").message
    except Invalid:
        return "the watch has failed"


def _processed(bookmark: msgspec.Raw) -> float:
    """Upstream's controller does not send it: then there is nothing to wait for. Raises ValueError."""
    notes = msgspec.json.decode(bookmark, type=_Bookmark).metadata.annotations
    return float(notes.get(PROCESSED, ALL))


def _by_key(rows: Iterable[Fact]) -> dict[Key, Fact]:
    return {(type(row), row.key): row for row in rows}


class Controlplane:
    """Keeps watches of all `kinds` at the controller for as long as it runs."""

    def __init__(
        self, kube: Kube, node: str, kinds: Iterable[WatchedKind], *, namespace: str, path: str = ""
    ) -> None:
        """`path` of a kubeconfig that leads to the controller, if it is not to be looked for by `kube`."""
        self._kube = kube
        self._namespace = namespace
        self._path = path
        kinds = tuple(kinds)
        self._feeds = [WatchFeed(kind, node) for kind in kinds if kind.saved]
        """All that policies and Egresses need, which is complete or not as a whole."""
        self._tasks = [WatchFeed(kind, node) for kind in kinds if not kind.saved]
        """Tasks of the moment, each kind by itself."""
        for feed in self._feeds:
            feed.together = self._feeds
            feed.heard = self._notify
        self.trouble = "not connected to antrea-controller yet"
        """Why there is no connection; empty while there is."""
        self.controller: Kube | None = None
        """The controller, while it is connected."""
        self.listeners: list[Callable[[], None]] = []
        """Called after each event."""
        self._on_connect: list[Callable[[], None]] = []

    async def run(self, facts: Facts) -> None:
        """Connect, watch, and connect again until cancelled."""
        pause = Backoff(asyncio.sleep, random.uniform, longest=MAX_PAUSE)
        while True:
            try:
                async with Kube(await self._access()) as controller:
                    await self._watch(controller, facts, pause)
                self.trouble = "antrea-controller has ended the watches"
            except AntreaError as error:
                if str(error) != self.trouble:
                    log.warning("No connection to antrea-controller", err=str(error))
                self.trouble = str(error)
            await pause.wait()

    @contextlib.contextmanager
    def notify_connected(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` within the block once for each connection, when the controller has answered."""
        self._on_connect.append(listener)
        try:
            yield
        finally:
            self._on_connect.remove(listener)

    @property
    def processed(self) -> float:
        """The resourceVersion of this Node's Pods up to which all watches are complete; NOTHING: none was received yet."""
        return min(feed.processed for feed in self._feeds)

    def rows(self) -> list[Fact] | None:
        """All rows; None while the initial state is incomplete."""
        if not all(feed.whole for feed in self._feeds):
            return None
        return [row for feed in self._feeds for row in feed.rows]

    def _notify(self) -> None:
        for tell in self.listeners:
            tell()

    async def _access(self) -> Access:
        if self._path:
            return kubeconfig(self._path)
        return await controller_access(self._kube, self._namespace, random.randrange)

    async def _watch(self, controller: Kube, facts: Facts, pause: Backoff) -> None:
        """Watch all kinds until one of the watches ends. Raises Unavailable, Refused."""

        def opened() -> None:
            if self.trouble:
                log.info("Connected to antrea-controller", url=controller.access.url)
            self.trouble = ""
            if self.controller is None:
                self.controller = controller
                for tell in self._on_connect:
                    tell()
            pause.reset()

        watches = [
            *(asyncio.ensure_future(feed.run(controller, facts, opened)) for feed in self._feeds),
            *(asyncio.ensure_future(_follow_alone(feed, controller, facts)) for feed in self._tasks),
        ]
        try:
            done, _ = await asyncio.wait(watches, return_when=asyncio.FIRST_COMPLETED)
            for ended in done:
                ended.result()
        finally:
            self.controller = None
            for ended in watches:
                ended.cancel()
            await asyncio.gather(*watches, return_exceptions=True)


async def _follow_alone(feed: WatchFeed, controller: Kube, facts: Facts) -> None:
    """Watch again and again, also where a controller of another version or a missing right refuses. Raises Unavailable."""
    pause = Backoff(asyncio.sleep, random.uniform, longest=MAX_PAUSE)
    why = ""
    while True:
        try:
            await feed.run(controller, facts, pause.reset)
        except Refused as error:
            if str(error) != why:
                log.warning("Watch refused by antrea-controller", err=str(error))
            why = str(error)
        await pause.wait()
