"""A Namespace for the Pods of a check, which goes with the check however that ends, and waiting for them."""

from __future__ import annotations

import contextlib
import random
import signal
import string
import time
from typing import TYPE_CHECKING, Any, NoReturn

from antrea.antctl.failure import Failure
from antrea.antctl.request import ErrorResponse, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from antrea.antctl.check.report import Report
    from antrea.antctl.request import Server

READY_SECONDS = 60.0
GONE_SECONDS = 60.0
LOOK_SECONDS = 0.5
PULLING = ("ErrImagePull", "ImagePullBackOff")
IMAGE_REASONS = (*PULLING, "ErrImageNeverPull", "InvalidImageName")
"""Reasons for which a container waits because of its image: kubelet tries the first two again."""


class Room:
    """Names a Namespace antrea-test-xxxxx, makes it on request and removes it when the `with` block ends."""

    def __init__(self, server: Server, report: Report) -> None:
        self.server = server
        self.report = report
        # no secret: it only has to be free
        letters = random.choices(string.ascii_lowercase + string.digits, k=5)  # noqa: S311
        self.namespace = f"antrea-test-{''.join(letters)}"

    def __enter__(self) -> Room:
        return self

    def __exit__(self, *_: object) -> None:
        self._tear_down()

    def create(self, component: str, purpose: str) -> None:
        """Make the Namespace. Raises Failure."""
        self.report.print_line(f"Creating Namespace {self.namespace} for {purpose} tests...")
        labels = {"app": "antrea", "component": component}
        body = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": self.namespace, "labels": labels},
        }
        ask(self.server, "/api/v1/namespaces", {}, body)

    def path(self, group: str, plural: str) -> str:
        """Return the path of a collection in this Namespace; `group` is such as api/v1 or apis/apps/v1."""
        return f"/{group}/namespaces/{self.namespace}/{plural}"

    def make(self, group: str, plural: str, body: dict[str, Any]) -> dict[str, Any]:
        """A new object as the API server has it. Raises Failure."""
        made: dict[str, Any] = ask(self.server, self.path(group, plural), {}, body)
        return made

    def pods(self, label: str) -> list[dict[str, Any]]:
        """Return the running Pods with a label. Raises Failure."""
        listed = ask(self.server, self.path("api/v1", "pods"), {"labelSelector": label})
        return [pod for pod in listed["items"] if "deletionTimestamp" not in pod["metadata"]]

    def wait_deployment(self, name: str) -> None:
        """Wait until a Deployment is ready; a Failure names what its Pods wait for."""
        query = {"labelSelector": f"name={name}"}
        wait_ready(
            *(self.server, self.report, "Deployment", name, self.path("apis/apps/v1", "deployments")),
            trouble=lambda: trouble(ask(self.server, self.path("api/v1", "pods"), query)["items"]),
        )

    def _tear_down(self) -> None:
        self.report.print_line("Deleting installation tests setup...")
        path = f"/api/v1/namespaces/{self.namespace}"
        try:
            if not self._exists(path, "DELETE"):
                return
            self.report.print_line(f"Waiting for Namespace {self.namespace} to be deleted")
            end = time.monotonic() + GONE_SECONDS
            while self._exists(path, "GET"):
                if time.monotonic() > end:
                    raise Failure(f"it is not gone after {GONE_SECONDS:g} s")
                time.sleep(LOOK_SECONDS)
            self.report.good("Setup deletion successful")
        except Failure as error:
            self.report.bad(f"Namespace {self.namespace} deletion failed: {error.format_message()}")

    def _exists(self, path: str, method: str) -> bool:
        try:
            ask(self.server, path, {}, method=method)
        except ErrorResponse as error:
            if error.status == 404:
                return False
            raise
        return True


def wait_ready(
    server: Server,
    report: Report,
    kind: str,
    name: str,
    collection: str,
    *,
    seconds: float = READY_SECONDS,
    trouble: Callable[[], dict[str, str]] = dict,
) -> None:
    """Wait until the Deployment or DaemonSet is ready; print each state once. Raises Failure if that takes too long."""
    report.print_line(f'Waiting for {kind} "{name}" to become ready...')
    end, said = time.monotonic() + seconds, set()
    while True:
        left = (deployment_left if kind == "Deployment" else daemon_set_left)(
            ask(server, f"{collection}/{name}", {})
        )
        if not left:
            report.print_line(f'{kind} "{name}" is ready')
            return
        missing = trouble()
        why, state = "; ".join(sorted(missing.values())), (left, *sorted(missing))
        if state not in said:
            report.print_line(f'Waiting for {kind} "{name}": {left}...{f" ({why})" if why else ""}')
            said.add(state)
        if time.monotonic() > end:
            reason = f": {why}" if why else ""
            raise Failure(f'{kind} "{name}" did not become ready within {seconds:g} s: {left}{reason}')
        time.sleep(LOOK_SECONDS)


def deployment_left(deployment: dict[str, Any]) -> str:
    """Describe what a Deployment still waits for; empty if it is ready. parity: pkg/antctl/raw/check/util.go DeploymentIsReady"""
    status, wanted = deployment.get("status", {}), deployment["spec"].get("replicas", 1)
    updated, available = status.get("updatedReplicas", 0), status.get("availableReplicas", 0)
    if deployment["metadata"].get("generation", 0) > status.get("observedGeneration", 0):
        return "its spec update is to be observed"
    if updated < wanted:
        return f"{updated} out of {wanted} new replicas have been updated"
    if status.get("replicas", 0) > updated:
        return f"{status['replicas'] - updated} old replicas are pending termination"
    return f"{available} of {updated} updated replicas are available" if available < updated else ""


def daemon_set_left(daemon_set: dict[str, Any]) -> str:
    """Describe what a DaemonSet still waits for; empty if it is ready."""
    status = daemon_set.get("status", {})
    wanted, updated = status.get("desiredNumberScheduled", 0), status.get("updatedNumberScheduled", 0)
    available = status.get("numberAvailable", 0)
    if daemon_set["metadata"].get("generation", 0) > status.get("observedGeneration", 0):
        return "its spec update is to be observed"
    if updated < wanted:
        return f"{updated} out of {wanted} new pods have been updated"
    return f"{available} of {wanted} updated pods are available" if available < wanted else ""


def trouble(pods: list[dict[str, Any]]) -> dict[str, str]:
    """Why Pods do not run, such as that no Node takes them or that their image cannot be pulled, by what it is about.

    One image is one trouble: its reasons alternate, and their words differ each time.
    """
    reasons: dict[str, str] = {}
    for status in [pod.get("status", {}) for pod in pods]:
        for condition in status.get("conditions", []):
            if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
                message = condition.get("message", "")
                reasons[message] = message
        for row in status.get("containerStatuses", []):
            waiting = row.get("state", {}).get("waiting", {})
            if message := waiting.get("message"):
                reason = f"{waiting.get('reason', '')}: {message}"
                reasons[f"image {row['image']}" if waiting.get("reason") in PULLING else reason] = reason
    return {about: " ".join(why.split()) for about, why in reasons.items() if why}


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the block as an error does, so that it cleans up; a second one ends that, too."""

    def interrupt(number: int, _: object) -> NoReturn:
        raise KeyboardInterrupt(signal.Signals(number).name)

    # SIGINT, too: asyncio would otherwise turn it into a cancelled task
    before = {name: signal.signal(name, interrupt) for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    except KeyboardInterrupt as error:
        raise Failure("interrupted") from error
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)
