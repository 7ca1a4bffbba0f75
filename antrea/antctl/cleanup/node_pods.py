"""Pods that remove what Antrea left on their Nodes: created by name of the Node, read by their log, and deleted in the end.

They are on the network of the Node, which needs no CNI plugin, and tolerate every taint. All Nodes work at the same time; one that
does not answer costs no more than the deadline.
"""

from __future__ import annotations

import random
import string
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import msgspec

from antrea.antctl.check.room import IMAGE_REASONS, trouble
from antrea.antctl.failure import Failure
from antrea.antctl.request import ask, text
from antrea.decoding import decode_json
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from antrea.antctl.request import Server

LOOK_SECONDS: Final = 0.5
GRACE_SECONDS: Final = 2.0
"""Between the deadline of kubelet for a Pod, which comes first, and that of the command."""
MAX_LOG: Final = 1 << 20
"""Bytes of the log of a Pod."""
MAX_TEXT: Final = 300
"""Characters of a line that is not the program's."""
PROGRAM: Final = ("python3", "-P", "-m", "antrea.antctl.cleanup.node")
FOLDERS: Final = {"cni-config": "/etc/cni/net.d", "run": "/var/run", "lib": "/var/lib", "log": "/var/log"}
BIN_MOUNT: Final = "/host/opt/cni/bin"


class _Event(msgspec.Struct, frozen=True):
    """A line of the program's output; it has one of the first three."""

    removed: str | None = None
    kept: str | None = None
    failed: str | None = None
    why: str = ""


class Removed(msgspec.Struct, rename="camel"):
    """Things that were removed at one place, a Node or the cluster, or would be; `error` is empty if nothing failed."""

    name: str
    removed: list[str] = msgspec.field(default_factory=list)
    kept: list[str] = msgspec.field(default_factory=list)
    error: str = ""

    def add(self, line: str) -> None:
        """Add a line of the program's output; others than its own, which a Node may write as well, are an error."""
        try:
            event = decode_json(line, _Event, "its output")
        except Invalid:
            event = _Event(failed="", why=line.strip()[:MAX_TEXT])
        if event.removed is not None:
            self.removed.append(event.removed)
        elif event.kept is not None:
            self.kept.append(f"{event.kept}: {event.why}")
        elif event.failed is not None:
            self.error = ": ".join(filter(None, (event.failed, event.why)))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the Pods."""

    namespace: str
    image: str
    cni_bin: str
    """Folder of CNI plugins on the Nodes."""
    seconds: float
    """Deadline of a Node."""
    dry_run: bool
    logs: bool


class NodePods:
    """The Pods of one run. In a `with`, at whose end they are deleted."""

    def __init__(self, server: Server, settings: Settings, say: Callable[[str], None]) -> None:
        self._server, self._settings, self._say = server, settings, say
        self._path = f"/api/v1/namespaces/{settings.namespace}/pods"
        # no secret: it only marks the Pods of this run
        letters = random.choices(string.ascii_lowercase + string.digits, k=8)  # noqa: S311
        self._labels = {"app": "antrea-cleanup", "run": "".join(letters)}
        self._selector = {"labelSelector": ",".join(f"{key}={value}" for key, value in self._labels.items())}

    def __enter__(self) -> NodePods:
        return self

    def __exit__(self, *_: object) -> None:
        # at once: kubelet of a Node that does not answer never confirms the end of a Pod
        ask(self._server, self._path, {**self._selector, "gracePeriodSeconds": "0"}, method="DELETE")

    def run(self, nodes: Sequence[Mapping[str, Any]]) -> list[Removed]:
        """Clean these Nodes, as the API server lists them. Raises Failure if the API server cannot be asked."""
        results = {node["metadata"]["name"]: Removed(node["metadata"]["name"]) for node in nodes}
        waiting = {name for name, result in results.items() if self._create(result)}
        end = time.monotonic() + self._settings.seconds + GRACE_SECONDS
        pods: list[Any] = []
        while waiting:
            pods = ask(self._server, self._path, self._selector)["items"]
            for pod in pods:
                name = pod["spec"]["nodeName"]
                if name in waiting and self._read(pod, results[name]):
                    waiting.remove(name)
                    self._report(results[name])
            if time.monotonic() > end:
                break
            time.sleep(LOOK_SECONDS if waiting else 0)
        for node in nodes:
            if (name := node["metadata"]["name"]) in waiting:
                results[name].error = self._overdue(node, pods)
                self._report(results[name])
        return list(results.values())

    def _create(self, result: Removed) -> bool:
        try:
            ask(self._server, self._path, {}, self._pod(result.name))
        except Failure as error:
            result.error = f"its Pod cannot be created: {error.format_message()}"
            self._report(result)
            return False
        return True

    def _read(self, pod: Mapping[str, Any], result: Removed) -> bool:
        """Whether the Pod has ended, or cannot start."""
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            result.error = not_pulled(pod)
            return bool(result.error)
        try:
            for line in self._log(pod["metadata"]["name"]).splitlines():
                result.add(line)
        except Failure as error:
            result.error = f"its Pod has ended, and its log cannot be read: {error.format_message()}"
        if pod["status"]["phase"] == "Failed" and not result.error:
            result.error = pod["status"].get("message") or "its Pod failed"
        return True

    def _log(self, name: str) -> str:
        return text(self._server, f"{self._path}/{name}/log?{urlencode({'limitBytes': MAX_LOG})}")

    def _overdue(self, node: Mapping[str, Any], pods: Iterable[Mapping[str, Any]]) -> str:
        of_node = [pod for pod in pods if pod["spec"]["nodeName"] == node["metadata"]["name"]]
        why = [why for why in (not_ready(node), *trouble([dict(pod) for pod in of_node]).values()) if why]
        why = why or [f"its Pod is {pod['status'].get('phase', 'Pending')}" for pod in of_node]
        return f"not done within {self._settings.seconds:g} s: {'; '.join(why) or 'its Pod is gone'}"

    def _report(self, result: Removed) -> None:
        done = "would remove" if self._settings.dry_run else "removed"
        failed = f"; failed: {result.error}" if result.error else ""
        self._say(f"Node {result.name}: {done} {len(result.removed)} things{failed}")

    def _pod(self, node: str) -> dict[str, Any]:
        settings = self._settings
        options = [
            option for option, given in (("--dry-run", settings.dry_run), ("--logs", settings.logs)) if given
        ]
        places = {**FOLDERS, "cni-bin": settings.cni_bin}
        inside = {name: f"/host{path}" for name, path in FOLDERS.items()} | {"cni-bin": BIN_MOUNT}
        container = {
            "name": "cleanup",
            "image": settings.image,
            "imagePullPolicy": "IfNotPresent",
            "command": [*PROGRAM, *options],
            "securityContext": {"privileged": True},
            "volumeMounts": [
                {"name": name, "mountPath": path, "mountPropagation": "HostToContainer"}
                for name, path in inside.items()
            ],
        }
        spec = {
            "nodeName": node,
            "hostNetwork": True,
            "hostPID": True,
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "priorityClassName": "system-node-critical",
            "activeDeadlineSeconds": max(1, int(settings.seconds)),
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in places.items()],
        }
        meta = {"generateName": "antrea-cleanup-", "labels": self._labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def not_pulled(pod: Mapping[str, Any]) -> str:
    """Return why the image of a Pod cannot be pulled; empty while it may still be."""
    for row in pod["status"].get("containerStatuses", []):
        waiting = row.get("state", {}).get("waiting", {})
        if waiting.get("reason") in IMAGE_REASONS:
            message = " ".join(waiting.get("message", "").split())
            return f"image {row['image']}: {waiting['reason']}: {message} (--image names another one)"
    return ""


def not_ready(node: Mapping[str, Any]) -> str:
    """Return why a Node is not Ready; empty if it is."""
    for condition in node.get("status", {}).get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] != "True":
            return f"the Node is not Ready: {condition.get('message') or condition.get('reason', '')}"
    return ""
