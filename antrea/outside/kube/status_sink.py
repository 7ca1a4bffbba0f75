"""Writes the status of objects by server-side apply, each field by the manager that owns it.

Register it for its entry in an assembly: `sinks[Status] = StatusSink(kube)`. It needs the right to get the objects
and to patch their subresource `status`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence  # noqa: TC003 (msgspec reads annotations)
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.core import ObjectMeta
from antrea.apis.crd.definition import GROUP
from antrea.apis.shown import shortened
from antrea.errors import Refused, Unavailable
from antrea.outside.kube.client import PatchKind
from antrea.outside.kube.clock import stamp
from antrea.outside.log import klog

if TYPE_CHECKING:
    from antrea.apis.crd.part import Condition
    from antrea.apis.status import Items, Status
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)

MAX_CONCURRENT = 8
"""Objects that are written at the same time."""
TRIES = 4
"""Maximum number of tries for one object that others write, too."""
UNDECLARED = "field not declared in schema"
"""The error of kube-apiserver, with code 500, for an applied field that the CRD does not have."""


class StoredObject(msgspec.Struct, frozen=True):
    """Fields read of an object before its status is written."""

    metadata: ObjectMeta = ObjectMeta()
    status: dict[str, Any] = {}


class StatusSink:
    """Sink of Status. Reads first: what stands as wanted is not written again, and lists of conditions are one field
    to the API server, so those of others are written along; who else writes meanwhile makes it read once more.
    """

    def __init__(self, kube: Kube, now: Callable[[], str] = stamp) -> None:
        self._kube = kube
        self._now = now
        self.written: Counter[str] = Counter()
        """How often the status of an object of each kind was written since this process started; kinds of other groups than
        ours are with their group."""
        self._older: set[str] = set()
        """Kinds whose schema in this cluster lacks what we would keep."""

    async def apply(self, put: Sequence[Status], _drop: Sequence[Status]) -> None:
        """Raises Refused naming all that were, with the server's words about the first; Unavailable."""
        room = asyncio.Semaphore(MAX_CONCURRENT)

        async def write(entry: Status) -> Refused | None:
            async with room:
                try:
                    await self._write(entry)
                except Refused as error:
                    return error
                return None

        answers = await asyncio.gather(*map(write, put), return_exceptions=True)
        for broken in answers:
            if isinstance(broken, BaseException) and not isinstance(broken, Refused):
                raise broken
        refused = [(entry, no) for entry, no in zip(put, answers, strict=True) if isinstance(no, Refused)]
        if refused:
            raise Refused([entry for entry, _ in refused], refused[0][1].why)

    async def resync(self, entries: Sequence[Status]) -> None:
        """Apply entries as `apply` does."""
        await self.apply(entries, ())

    async def sweep(self, category: int) -> None:
        """Nothing to sweep: a status that has to go is an entry with empty values."""

    async def _write(self, entry: Status) -> None:
        seen = ""
        why: Refused | None = None
        for _ in range(TRIES):
            held = await self._kube.get(entry.path, StoredObject)
            if held is None:
                log.v(2).info("Skipped the status of a deleted object", object=entry.path)
                return
            if entry.keyed:
                held = _without_others(entry, held)
            status = self._wanted(entry, held)
            if _within(status, held.status):
                return
            version = held.metadata.resource_version
            if why is not None and version == seen:
                raise why
            seen = version
            try:
                await self._kube.patch(
                    f"{entry.path}/status",
                    {**_head(entry, held.metadata), "status": status},
                    PatchKind.APPLY,
                    manager=entry.manager,
                )
            except Refused as error:
                why = error
            except Unavailable as error:
                if UNDECLARED not in str(error) or entry.kind in self._older or not entry.keeps:
                    raise
                log.warning("A CRD is older than this program", kind=entry.kind, lacks=entry.keeps)
                self._older.add(entry.kind)
                seen = ""
            else:
                self.written[_counted_kind(entry)] += 1
                log.v(2).info("Updated status", kind=entry.kind, object=entry.path.rpartition("/")[2])
                return
        raise why or Refused([entry], f"{entry.path} is changed by others all the time")

    def _wanted(self, entry: Status, held: StoredObject) -> dict[str, Any]:
        older = entry.kind in self._older
        status = {name: held.status[name] for name in entry.keeps if name in held.status} | _nested(entry)
        status = {name: value for name, value in status.items() if not older or name not in entry.keeps}
        if entry.conditions:
            standing = held.status.get("conditions", ())
            status["conditions"] = merged(standing, entry.conditions, self._now(), ahead=entry.ahead)
        if entry.items:
            status[entry.items.name] = together(held.status.get(entry.items.name, ()), entry.items)
        return status


def _without_others(entry: Status, held: StoredObject) -> StoredObject:
    """Return the object without conditions of types that the entry does not have."""
    types = {condition.type for condition in entry.conditions}
    conditions = [row for row in held.status.get("conditions", ()) if row.get("type") in types]
    return msgspec.structs.replace(held, status={**held.status, "conditions": conditions})


def merged(
    standing: Sequence[dict[str, Any]], ours: Sequence[Condition], now: str, *, ahead: bool
) -> list[dict[str, Any]]:
    """The list of conditions with `ours` in it: in their place, and with their time if only words have changed."""
    wanted = {condition.type: condition for condition in ours}
    result = []
    for old in standing:
        new = wanted.pop(old.get("type", ""), None)
        if new is None:
            result.append(dict(old))
        elif new.status:
            same = new.status == old.get("status")
            result.append(_condition(new, old.get("lastTransitionTime", now) if same else now))
    more = [_condition(new, now) for new in wanted.values() if new.status]
    return [*more, *result] if ahead else [*result, *more]


def together(standing: Sequence[dict[str, Any]], ours: Items) -> list[dict[str, Any]]:
    """The list with `ours` in it."""
    items = {item.get(ours.by): item for item in standing}
    for item in ours.items:
        # as JSON reads them back
        fields = {name: list(value) if isinstance(value, tuple) else value for name, value in item}
        items[fields[ours.by]] = fields
    return [items[value] for value in ours.known if value in items]


def _condition(condition: Condition, time: str) -> dict[str, Any]:
    built: dict[str, Any] = msgspec.to_builtins(condition)
    shown = {"message": shortened(condition.message)} if condition.message else {}
    return built | shown | {"lastTransitionTime": time}


def _head(entry: Status, metadata: ObjectMeta) -> dict[str, Any]:
    """Return the fields that identify the object in the version that was read: a new one of its name, or a later version, is not changed."""
    parts = entry.path.split("/")
    named = {"name": metadata.name, "uid": metadata.uid, "resourceVersion": metadata.resource_version}
    if metadata.namespace:
        named["namespace"] = metadata.namespace
    version = f"{parts[2]}/{parts[3]}" if parts[1] == "apis" else parts[2]
    return {"apiVersion": version, "kind": entry.kind, "metadata": named}


def _nested(entry: Status) -> dict[str, Any]:
    status: dict[str, Any] = {}
    for name, value in entry.fields:
        *above, last = name.split(".")
        place = status
        for step in above:
            place = place.setdefault(step, {})
        place[last] = value
    return status


def _counted_kind(entry: Status) -> str:
    group = entry.path.split("/")[2]
    return entry.kind if group == GROUP else f"{entry.kind}.{group}"


def _within(wanted: dict[str, Any], standing: dict[str, Any]) -> bool:
    """Whether all that is wanted stands; what is left out stands as its empty value."""
    for name, value in wanted.items():
        item = standing.get(name)
        if isinstance(value, dict):
            if not isinstance(item, dict) or not _within(value, item):
                return False
        elif item != value and (name in standing or value not in ("", [])):
            return False
    return True
