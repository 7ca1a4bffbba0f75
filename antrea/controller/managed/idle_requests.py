"""Events on annotations and objects that nothing acts on: one for each object and reason.

The name of the Event is derived from the object and the message, so that it exists once although each replica records it
after each start.
"""

from __future__ import annotations

import asyncio
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from antrea.apis.core import Event, EventSource, ObjectMeta, ObjectReference, OnlyMetadata
from antrea.config.agent import AgentConfig
from antrea.config.controller import ControllerConfig
from antrea.config.load import parse
from antrea.controller.managed.namespace_queue import NamespaceQueue
from antrea.errors import Invalid, Refused, Unavailable
from antrea.features.framework.config_validation import accept_agent, accept_controller
from antrea.features.framework.gate import GATES
from antrea.features.framework.idle_request import DOMAIN, ProgramGates, annotation_findings, object_finding
from antrea.features.registry.annotations import BY_NAME, WRITTEN
from antrea.features.registry.crds import CRDS
from antrea.outside.kube.answer import Put, Some
from antrea.outside.kube.client import event_name
from antrea.outside.kube.clock import stamp
from antrea.outside.kube.config_map import contents
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from antrea.features.framework.gate import EnabledGates
    from antrea.features.framework.idle_request import Finding
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

COMPONENT = "antrea-controller"
MAX_OBJECTS = 10_000
"""Objects that are remembered, and Events that wait; the Namespace with the most loses the rest, and has read of it by then."""
MAX_MESSAGE = 1024
"""Characters of an Event's message, which kube-apiserver limits."""
PAUSE_SECONDS = 0.1
"""Between two Events, so that users cannot make the controller flood kube-apiserver."""
RETRY_SECONDS = 5.0
CORE_KINDS = {"pods": "Pod", "namespaces": "Namespace", "nodes": "Node", "services": "Service"}
_GATES = {gate.name: gate for gate in GATES}
_CRDS = {(crd.group, crd.plural): crd for crd in CRDS}


class Kind(NamedTuple):
    """The kind of the objects of a collection; `gate` acts on all of them, empty: annotations alone ask for something."""

    name: str
    api_version: str
    gate: str = ""

    @property
    def qualified(self) -> str:
        """Full name of the rule, as in AnnotationRule."""
        group = self.api_version.rpartition("/")[0]
        return f"{self.name}.{group}" if group else self.name


class Requests(NamedTuple):
    """Kind of an object and its annotations of Antrea's."""

    about: ObjectReference
    kind: Kind
    annotations: Mapping[str, str]


@cache
def kind_of(path: str) -> Kind | None:
    """Return the kind of a collection such as /api/v1/pods; None for one that is not checked."""
    root, _, plural = path.rpartition("/")
    api_version = root.removeprefix("/apis/").removeprefix("/api/")
    group = api_version.rpartition("/")[0]
    if (crd := _CRDS.get((group, plural))) is not None:
        # of several gates the last is the one that acts on the kind; the controller's own are shown in statuses
        gate = crd.gates[-1] if crd.gates else ""
        acts = gate and (not _GATES[gate].built or "controller" not in _GATES[gate].components)
        return Kind(crd.versions[-1].kind.__name__, api_version, gate if acts else "")
    if group == "networking.k8s.io" and plural == "networkpolicies":
        return Kind("NetworkPolicy", api_version)
    name = CORE_KINDS.get(plural) if not group else None
    return Kind(name, api_version) if name else None


def stored_collections(watched: Iterable[str]) -> tuple[str, ...]:
    """Paths of kinds that may have no feature behind them, and that are not `watched` by one."""
    paths = (f"/apis/{crd.group}/{crd.versions[-1].name}/{crd.plural}" for crd in CRDS)
    seen = set(watched)
    return tuple(path for path in paths if path not in seen and (kind := kind_of(path)) and kind.gate)


class IdleRequestEvents:
    """Receives each object that feeds read, and records Events in a task of its own."""

    def __init__(
        self,
        kube: Kube,
        namespace: str = "",
        config_map: str = "",
        stored: Iterable[str] = (),
        *,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        """`config_map` in `namespace` has the configurations of both programs; objects of the collections `stored` are read here."""
        self._kube, self._place, self._stored, self._pause = (
            kube,
            (namespace, config_map),
            tuple(stored),
            pause,
        )
        self._gates = ProgramGates()
        self._known = NamespaceQueue[str, Requests](MAX_OBJECTS)
        """Objects that ask for something, by UID."""
        self._reported: dict[str, dict[str, str]] = {}
        """Last message by reason, by UID."""
        self._waiting = NamespaceQueue[tuple[str, str], Event](MAX_OBJECTS)
        self._news = asyncio.Event()

    def note(self, path: str, stored: Any) -> None:
        """An object of a collection, as it is now."""
        kind, meta = kind_of(path), stored.metadata
        if kind is None:
            return
        annotations = {
            name: value for name, value in meta.annotations.items() if DOMAIN in name and name not in WRITTEN
        }
        if not annotations and not kind.gate:
            if self._known.pop(meta.uid) is not None:
                self._forget(meta.uid)
            return
        about = ObjectReference(kind.name, meta.name, meta.namespace, meta.uid, kind.api_version)
        requests = Requests(about, kind, annotations)
        if (displaced := self._known.put(meta.uid, meta.namespace, requests)) is not None:
            self._forget(displaced)
        if displaced != meta.uid:
            self._judge(requests)

    def take_gates(self, files: Mapping[str, str]) -> None:
        """Judge all by the configurations of the programs, by the name of their files."""
        agent, controller = files.get(AgentConfig.file), files.get(ControllerConfig.file)
        gates = ProgramGates(
            _agent_gates(agent) if agent is not None else None,
            _controller_gates(controller) if controller is not None else None,
        )
        if gates != self._gates:
            self._gates = gates
            for requests in self._known:
                self._judge(requests)

    def _judge(self, requests: Requests) -> None:
        texts: dict[str, list[str]] = {}
        for finding in _findings(requests, self._gates):
            texts.setdefault(finding.reason, []).append(finding.text)
        uid = requests.about.uid
        before = self._reported.pop(uid, {})
        now = {reason: "; ".join(lines)[:MAX_MESSAGE] for reason, lines in texts.items()}
        for reason in before.keys() - now.keys():
            self._waiting.pop((uid, reason))
        for reason, message in now.items():
            if before.get(reason) != message:
                made = event(requests.about, reason, message)
                self._waiting.put((uid, reason), requests.about.namespace, made)
                self._news.set()
        if now:
            self._reported[uid] = now

    def _forget(self, uid: str) -> None:
        for reason in self._reported.pop(uid, {}):
            self._waiting.pop((uid, reason))

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._record())
            if all(self._place):
                tasks.create_task(self._follow_gates())
            for path in self._stored:
                tasks.create_task(self._follow(path))

    async def _follow_gates(self) -> None:
        async for files in contents(self._kube, *self._place):
            self.take_gates(files)

    async def _follow(self, path: str) -> None:
        """Objects of a kind, if there is one: its CRD may be older than this program."""
        async for change in self._kube.watch_pages(path, OnlyMetadata, optional=True, metadata_only=True):
            if isinstance(change, Some):
                for stored in change.objects:
                    self.note(path, stored)
            elif isinstance(change, Put):
                self.note(path, change.object)

    async def _record(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._waiting:
                key, event = self._waiting.next_turn()
                if await self._record_event(event) and self._waiting.get(key) is event:
                    self._waiting.pop(key)
                await asyncio.sleep(self._pause)

    async def _record_event(self, event: Event) -> bool:
        """False if it has to be tried again."""
        try:
            await self._kube.create(f"/api/v1/namespaces/{event.metadata.namespace}/events", event)
        except Refused as error:
            if "already exists" not in error.why:
                log.v(2).info("kube-apiserver refused an Event on an unsupported field", err=error.why)
        except Unavailable as error:
            log.v(2).info(
                "Retrying an Event; kube-apiserver is unavailable", reason=event.reason, err=str(error)
            )
            await asyncio.sleep(RETRY_SECONDS)
            return False
        return True


def _findings(requests: Requests, gates: ProgramGates) -> Iterable[Finding]:
    kind = requests.kind
    if kind.gate and (finding := object_finding(kind.gate, gates)) is not None:
        yield finding
    yield from annotation_findings(kind.qualified, requests.annotations, BY_NAME, gates)


def _agent_gates(text: str) -> EnabledGates | None:
    """None for a configuration that agents refuse: an older one is in effect."""
    try:
        return accept_agent(parse(AgentConfig, text).config)
    except Invalid:
        return None


def _controller_gates(text: str) -> EnabledGates | None:
    try:
        return accept_controller(parse(ControllerConfig, text).config)
    except Invalid:
        return None


def event(about: ObjectReference, reason: str, message: str) -> Event:
    """Equal for the same object, reason and message, but for the time."""
    now, mark = stamp(), zlib.crc32(f"{about.uid}\n{reason}\n{message}".encode(errors="replace"))
    return Event(
        metadata=ObjectMeta(
            name=event_name(about.name, f"{mark:08x}"), namespace=about.namespace or "default"
        ),
        involved_object=about,
        reason=reason,
        message=message,
        type="Warning",
        source=EventSource(COMPONENT),
        first_timestamp=now,
        last_timestamp=now,
    )
