"""What an agent makes of a watch: the state it holds after reading the lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from antrea.outside.apiserver.watcher import Watcher


def read(watcher: Watcher, most: int = 1 << 30) -> bytes:
    return watcher.pop(most)


def lines(watcher: Watcher) -> list[tuple[str, dict[str, Any]]]:
    """All events that wait, as type and object."""
    return [(row["type"], row["object"]) for row in map(json.loads, read(watcher).splitlines())]


class Client:
    """Objects by name; of a group, its members as sorted JSON. Fails on an event that does not fit what it holds."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.began = False
        self._first: dict[str, Any] = {}
        self._half = b""

    def feed(self, text: bytes) -> None:
        *whole, self._half = (self._half + text).split(b"\n")
        for line in whole:
            event = json.loads(line)
            self._apply(event["type"], event["object"])

    def _apply(self, kind: str, found: dict[str, Any]) -> None:
        held = self.objects if self.began else self._first
        name = found["metadata"].get("name") if "metadata" in found else found["name"]
        if kind == "BOOKMARK":
            self.objects, self.began = self._first, True
        elif kind == "DELETED":
            assert held.pop(name, None) is not None
        elif kind == "ADDED":
            assert name not in held
            held[name] = content(found)
        elif found["kind"].endswith("Patch"):
            added = texts(found.get("addedGroupMembers") or found.get("AddedGroupMembers") or [])
            removed = texts(found.get("removedGroupMembers") or found.get("RemovedGroupMembers") or [])
            assert removed <= held[name]
            assert not added & held[name]
            held[name] = (held[name] - removed) | added
        else:
            assert name in held
            held[name] = content(found)


def content(found: dict[str, Any]) -> Any:
    if found["kind"].endswith("Group"):
        return texts(found.get("groupMembers", []))
    return {k: v for k, v in found.items() if k not in ("kind", "apiVersion")}


def texts(members: list[dict[str, Any]]) -> frozenset[str]:
    return frozenset(json.dumps(member, sort_keys=True) for member in members)
