"""What the controller says of Pods comes after the policies that were written just before them, on each watch of an agent."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from admission_object import create
from api_client import ApiClient

from antrea.apis.controlplane import PROCESSED
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller_process import ControllerProcess

    from lab.cluster import Lab

SPACE = "starting"
PODS = f"/api/v1/namespaces/{SPACE}/pods"
POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{SPACE}/networkpolicies"
CONTROLPLANE = "/apis/controlplane.antrea.io/v1beta2"
MERGE = "application/merge-patch+json"
CHANGE_SECONDS = 0.02


@pytest.fixture
def starting(controller: ControllerProcess) -> Iterator[Lab]:
    """With a Namespace that has the account which Pods need."""
    create(controller.lab, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    account = f"/api/v1/namespaces/{SPACE}/serviceaccounts"
    wait_for("the default ServiceAccount", lambda: controller.lab.api.items(account), seconds=60, step=0.1)
    yield controller.lab
    with contextlib.closing(ApiClient(controller.lab)) as api:
        assert api.call("DELETE", f"{PODS}?gracePeriodSeconds=0").status == 200
    controller.lab.api.kubectl("delete", "namespace", SPACE, "--wait=false")


@pytest.mark.parametrize("number", [8, pytest.param(200, marks=pytest.mark.wide)])
def test_pods_are_processed_after_the_policies_written_just_before_them_while_others_change(
    starting: Lab, number: int
) -> None:
    seconds = starts(starting, number)
    flush_on_deny = statistics.quantiles(seconds, n=100)
    print(
        f"{number} starts, from the Pod to the word: p50 {flush_on_deny[49]:.3f} s, p99 {flush_on_deny[98]:.3f} s"
    )


def starts(lab: Lab, number: int) -> list[float]:
    """Pods with a policy each, written one after the other. Returns how long after each Pod its Node was told."""
    names = [f"start-{place}" for place in range(number)]
    written: dict[str, tuple[int, float]] = {}
    policies, groups = Told(lab, "networkpolicies"), Told(lab, "appliedtogroups")
    with contextlib.closing(ApiClient(lab)) as api, policies, groups, others_change(lab):
        for name in names:
            assert api.call("POST", POLICIES, policy(name)).status == 201
            answer = api.call("POST", PODS, pod(name))
            assert answer.status == 201
            written[name] = int(answer.body["metadata"]["resourceVersion"]), time.monotonic()
        last = max(version for version, _ in written.values())
        for told in (policies, groups):
            wait_for("its word", lambda told=told: told.processed >= last, seconds=60, step=0.05)  # type: ignore[misc]
    early = [
        (told.plural, name)
        for told in (policies, groups)
        for name, (version, _) in written.items()
        if told.at(name) > told.covers(version)[0]
    ]
    assert early == []
    return [
        max(told.covers(version)[1] for told in (policies, groups)) - when
        for version, when in written.values()
    ]


class Told:
    """One watch of the agent of n1: what it was told and when, while the block lasts."""

    def __init__(self, lab: Lab, plural: str) -> None:
        self.plural = plural
        self._api = ApiClient(lab)
        self._words: list[tuple[int, float]] = []
        """Each bookmark, and when it came."""
        self._at: dict[str, int] = {}
        """Name of a Pod or policy -> how many bookmarks came before it."""
        self._thread = threading.Thread(target=self._hear)

    def __enter__(self) -> None:
        query = "watch=true&allowWatchBookmarks=true&fieldSelector=nodeName%3Dn1"
        self._api.request("GET", f"{CONTROLPLANE}/{self.plural}?{query}")
        self._answer = self._api.getresponse()
        assert self._answer.status == 200
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._api.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._api.close()

    @property
    def processed(self) -> int:
        return self._words[-1][0] if self._words else 0

    def at(self, name: str) -> int:
        """How many bookmarks came before the first word of it; very many if there was none."""
        return self._at.get(name, 1 << 30)

    def covers(self, version: int) -> tuple[int, float]:
        """The number of the first bookmark with this version or more, and when it came."""
        return next((place, when) for place, (said, when) in enumerate(self._words) if said >= version)

    def _hear(self) -> None:
        """Until the end of the block: a reader that waits returns only once its connection is shut down."""
        with contextlib.suppress(OSError, http.client.IncompleteRead):
            while line := self._answer.readline():
                self._take(json.loads(line))

    def _take(self, event: dict[str, Any]) -> None:
        found = event["object"]
        if event["type"] == "BOOKMARK":
            version = int(found["metadata"]["annotations"][PROCESSED])
            self._words.append((version, time.monotonic()))
            return
        members = [*found.get("groupMembers", ()), *found.get("addedGroupMembers", ())]
        names = [member["pod"]["name"] for member in members]
        if "sourceRef" in found:
            names.append(found["sourceRef"]["name"])
        for name in names:
            self._at.setdefault(name, len(self._words))


@contextlib.contextmanager
def others_change(lab: Lab) -> Iterator[None]:
    """A Pod of the same Node and policies of it come, change and go all the time."""
    over, wrong = threading.Event(), list[Any]()

    def change(api: ApiClient) -> None:
        for number in itertools.count():
            labels = {"metadata": {"labels": {"start": str(number)}}}
            answers = (
                api.call("PATCH", f"{PODS}/other", labels, kind=MERGE),
                api.call("POST", POLICIES, policy(f"passing-{number}")),
                api.call("PATCH", f"{POLICIES}/other", {"spec": selecting(str(number))}, kind=MERGE),
                api.call("DELETE", f"{POLICIES}/passing-{number}"),
            )
            wrong.extend(answer for answer in answers if answer.status not in (200, 201))
            if over.wait(CHANGE_SECONDS) or wrong:
                return

    with contextlib.closing(ApiClient(lab)) as api:
        assert api.call("POST", POLICIES, policy("other")).status == 201
        assert api.call("POST", PODS, pod("other")).status == 201
        changing = threading.Thread(target=change, args=(api,))
        changing.start()
        try:
            yield
        finally:
            over.set()
            changing.join()
    assert not wrong


def selecting(name: str) -> dict[str, Any]:
    return {"podSelector": {"matchLabels": {"start": name}}, "policyTypes": ["Egress"]}


def policy(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": selecting(name)}


def pod(name: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"start": name}},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "none"}]},
    }
