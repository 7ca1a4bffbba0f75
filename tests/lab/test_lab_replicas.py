"""Two replicas of the controller beside a real API server: the leader is killed while much changes, and nothing is lost."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import signal
import ssl
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml
from api_client import ApiClient
from controller_process import PORT, ControllerProcess, endpoint, prepare, withdraw

from antrea.errors import Unavailable
from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lab.cluster import Lab

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/antrea-controller"
CP = "/apis/controlplane.antrea.io/v1beta2"
LATENCY = "/apis/stats.antrea.io/v1alpha1/nodelatencystats"
INFOS, CONTROLLER = (
    "/apis/crd.antrea.io/v1beta1/antreaagentinfos",
    "/apis/crd.antrea.io/v1beta1/antreacontrollerinfos/antrea-controller",
)
PORTS = (PORT, PORT + 5)
RESUMED = 60.0
"""Seconds that an agent may be without a controller when its leader is killed."""


class Pair(NamedTuple):
    leader: ControllerProcess
    other: ControllerProcess


class Direct(ApiClient):
    """The administrator's connection to one replica, as an agent's: the API server is not in between."""

    def __init__(self, replica: ControllerProcess) -> None:
        super().__init__(replica.lab, replica.port)
        # whose certificate that is, is shown in test_lab_certificates.py
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE


def identity(lab: Lab) -> str:
    """Of who holds the Lease: its name, and what tells this start of it from others."""
    with contextlib.closing(ApiClient(lab)) as client:
        found = client.call("GET", LEASE)
    return str(found.body.get("spec", {}).get("holderIdentity", "")) if found.status == 200 else ""


def holder(lab: Lab) -> str:
    return identity(lab).partition("_")[0]


def named(port: int) -> str:
    """The Pod that a replica takes itself for."""
    return f"antrea-controller-{port - PORT}"


class Replicas:
    """Two controllers that elect a leader; a test that ends one leaves the next test two new ones."""

    def __init__(self, lab: Lab, folders: pytest.TempPathFactory) -> None:
        self._lab = lab
        self._folders = folders
        self._running: list[ControllerProcess] = []

    def pair(self) -> Pair:
        """Alive, serving, known to the API server, and one of them the leader."""
        if not self._running or any(one.process.poll() is not None for one in self._running):
            self.end()
            self._begin()
        leads = {named(one.port): one for one in self._running}[holder(self._lab)]
        return Pair(leads, next(one for one in self._running if one is not leads))

    def _begin(self) -> None:
        lab, before = self._lab, identity(self._lab)
        prepare(lab)
        lab.api.apply(yaml.safe_dump_all([endpoint(lab, port) for port in PORTS]))
        self._running = [
            ControllerProcess(lab, self._folders.mktemp(f"replica-{port}"), port=port, elect=True)
            for port in PORTS
        ]
        try:
            wait_for(
                "certificates", lambda: all(one.certified() for one in self._running), seconds=60, step=0.3
            )
            self._running[0].wait()
            wait_for("a leader", lambda: identity(lab) not in ("", before), seconds=60, step=0.2)
        except Unavailable as error:
            for one in self._running:
                error.add_note(one.log.read_text()[-3000:])
            raise

    def end(self) -> None:
        for one in self._running:
            one.process.kill()
            one.process.wait()
        if self._running:
            withdraw(self._lab)
            slices = [f"antrea-test-{port}" for port in PORTS]
            self._lab.api.kubectl(
                "-n", "kube-system", "delete", "endpointslice", "--ignore-not-found", *slices
            )
        self._running = []


@pytest.fixture(scope="module")
def replicas(control_plane: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    made = Replicas(control_plane, tmp_path_factory)
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def pair(replicas: Replicas) -> Pair:
    return replicas.pair()


class Agent(threading.Thread):
    """Watches what agents watch, at any replica that answers, and notes what it was told and for how long it was without."""

    def __init__(self, replicas: list[ControllerProcess], plural: str = "addressgroups") -> None:
        super().__init__(daemon=True)
        self.replicas = replicas
        self.plural = plural
        self.events: list[str] = []
        self.gaps: list[float] = []
        self.refusals: set[int] = set()
        """Statuses of answers that were no watch."""
        self.bookmarks = 0
        self.ended = threading.Event()

    def run(self) -> None:
        lost = time.monotonic()
        for replica in itertools.cycle(self.replicas):
            if self.ended.is_set():
                return
            with (
                contextlib.suppress(OSError, http.client.HTTPException),
                contextlib.closing(Direct(replica)) as client,
            ):
                client.timeout = 1.0
                client.request("GET", f"{CP}/{self.plural}?watch=true")
                answer = client.getresponse()
                if answer.status == 200:
                    self._read(answer, lost)
                    lost = time.monotonic()
                else:
                    self.refusals.add(answer.status)
            time.sleep(0.05)

    def _read(self, answer: http.client.HTTPResponse, lost: float) -> None:
        while not self.ended.is_set():
            try:
                line = answer.readline()
            except TimeoutError:
                return
            if not line:
                return
            event = json.loads(line)
            self.events.append(event["type"])
            if event["type"] == "BOOKMARK":
                self.bookmarks += 1
                self.gaps.append(time.monotonic() - lost)


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def infos(lab: Lab) -> dict[str, str]:
    """Names and UIDs."""
    with contextlib.closing(ApiClient(lab)) as client:
        items = client.call("GET", INFOS).body["items"]
    return {item["metadata"]["name"]: item["metadata"]["uid"] for item in items}


def post(replica: ControllerProcess, name: str) -> int:
    """An agent's report; the status of the answer, 0 if there is none."""
    body = {
        "apiVersion": "stats.antrea.io/v1alpha1", "kind": "NodeLatencyStats", "metadata": {"name": name},
        "peerNodeLatencyStats": [],
    }  # fmt: skip
    with (
        contextlib.suppress(OSError, http.client.HTTPException),
        contextlib.closing(Direct(replica)) as client,
    ):
        return client.call("POST", LATENCY, body).status
    return 0


def taken(replica: ControllerProcess, name: str) -> bool:
    """Whether that report was."""
    return post(replica, name) == 201


def reported(replica: ControllerProcess) -> set[str]:
    with contextlib.closing(Direct(replica)) as client:
        return {item["metadata"]["name"] for item in client.call("GET", LATENCY).body["items"]}


def changes(lab: Lab, names: list[str], halfway: Callable[[], None]) -> None:
    """Half of the Nodes come, then `halfway`, then the other half comes while a quarter goes."""
    with contextlib.closing(ApiClient(lab)) as client:
        half = len(names) // 2
        for count, name in enumerate(names):
            if count == half:
                halfway()
            assert client.call("POST", "/api/v1/nodes", node(name)).status == 201
            if count >= half and count % 2:
                client.call("DELETE", f"/api/v1/nodes/{names[count - half]}")


def test_a_report_to_any_replica_is_the_leaders_and_any_replica_shows_it(pair: Pair) -> None:
    for replica, name in ((pair.other, "by-the-other"), (pair.leader, "by-the-leader")):
        # the other one hears who leads when it hears of the Lease
        wait_for(f"a report {name}", partial(taken, replica, name), seconds=60, step=0.1)
    wanted = {"by-the-other", "by-the-leader"}
    assert reported(pair.leader) == reported(pair.other) >= wanted
    shown = [
        json.loads(pair.leader.lab.api.kubectl("get", "controllerinfo", "antrea-controller", "-o", "json"))
        for _ in range(4)
    ]
    assert {info["podRef"]["name"] for info in shown} == {holder(pair.leader.lab)}
    assert pair.other.curl(path="/readyz") == "ok"


def test_the_controller_counts_agents_of_all_replicas(pair: Pair) -> None:
    lab = pair.leader.lab

    def counted() -> int:
        info = json.loads(lab.api.kubectl("get", "controllerinfo", "antrea-controller", "-o", "json"))
        return int(info.get("connectedAgentNum", 0))

    with contextlib.ExitStack() as opened:
        for count, replica in enumerate((pair.leader, pair.other, pair.other)):
            client = opened.enter_context(contextlib.closing(Direct(replica)))
            client.request("GET", f"{CP}/appliedtogroups?watch=true&fieldSelector=nodeName%3Dn{count}")
            client.getresponse().readline()
        wait_for("three agents", lambda: counted() == 3, seconds=60, step=0.3)
    wait_for("no agent", lambda: counted() == 0, seconds=60, step=0.3)


def read_until_bookmark(replica: ControllerProcess, events: list[tuple[str, str]]) -> None:
    """Watch EgressGroups until the first bookmark: append type and name of the object of each event.

    A replica that cannot confirm that it is up to date answers 503, and clients ask again.
    """
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.closing(Direct(replica)) as client:
            client.request("GET", f"{CP}/egressgroups?watch=true&timeoutSeconds=20")
            answer = client.getresponse()
            if answer.status == 503:
                time.sleep(0.1)
                continue
            assert answer.status == 200, answer.read()
            while line := answer.readline():
                event = json.loads(line)
                events.append((event["type"], event["object"]["metadata"].get("name", "")))
                if event["type"] == "BOOKMARK":
                    return
    raise Unavailable("no watch within 60 s")


def test_a_replica_that_is_behind_begins_no_watch_before_it_knows_what_the_other_has_told(pair: Pair) -> None:
    egress = {
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "Egress", "metadata": {"name": "late"},
        "spec": {"appliedTo": {"podSelector": {}}, "egressIP": "192.0.2.9"},
    }  # fmt: skip
    first: list[tuple[str, str]] = []
    read_until_bookmark(pair.other, first)
    assert first == [("BOOKMARK", "")]
    os.kill(pair.other.process.pid, signal.SIGSTOP)  # it computes nothing; its front goes on to serve
    try:
        pair.leader.lab.api.apply(json.dumps(egress))

        def told() -> bool:
            events: list[tuple[str, str]] = []
            read_until_bookmark(pair.leader, events)
            return ("ADDED", "late") in events

        wait_for("the leader to tell of it", told, seconds=60, step=0.1)
        behind: list[tuple[str, str]] = []
        thread = threading.Thread(target=read_until_bookmark, args=(pair.other, behind))
        thread.start()
        thread.join(1.5)
        assert behind == []
    finally:
        os.kill(pair.other.process.pid, signal.SIGCONT)
    thread.join(90)
    pair.leader.lab.api.kubectl("delete", "egress", "late")
    assert behind == [("ADDED", "late"), ("BOOKMARK", "")]


def test_a_killed_leader_is_replaced_while_a_hundred_objects_change_and_nothing_is_lost(pair: Pair) -> None:
    lab = pair.leader.lab
    names = [f"r{count}" for count in range(100)]
    killed: list[float] = []
    agent = Agent([pair.leader, pair.other])
    agent.start()
    wait_for("a watch", lambda: agent.bookmarks, seconds=60)

    def kill() -> None:
        wait_for("objects of the first half", lambda: set(names[:50]) <= infos(lab).keys(), seconds=60)
        before.update(infos(lab))
        pair.leader.process.kill()
        pair.leader.process.wait()
        killed.append(time.monotonic())
        lab.api.kubectl("-n", "kube-system", "delete", "endpointslice", f"antrea-test-{pair.leader.port}")

    before: dict[str, str] = {}
    try:
        changes(lab, names, kill)
        wait_for("a report", lambda: taken(pair.other, "after"), seconds=60, step=0.1)
        reported_after = time.monotonic() - killed[0]
        left = {name for count, name in enumerate(names) if not (count < 50 and count % 2)}
        wait_for("all objects", lambda: set(names) & infos(lab).keys() == left, seconds=60, step=0.1)
        settled_after = time.monotonic() - killed[0]
    finally:
        agent.ended.set()
        agent.join(10)
    resumed = max(agent.gaps[1:])
    print(f"report {reported_after:.1f} s, objects {settled_after:.1f} s, watch {resumed:.1f} s")
    after = infos(lab)
    # nobody took away and made anew what stood
    assert {name: after[name] for name in left & before.keys()} == {
        name: before[name] for name in left & before.keys()
    }
    assert max(reported_after, resumed) < RESUMED
    assert "DELETED" not in agent.events
    assert agent.refusals <= {503}  # of a replica that ends, or is not as far yet: to be asked again
    assert holder(lab) == named(pair.other.port)
    with contextlib.closing(ApiClient(lab)) as client:
        for name in left:
            client.call("DELETE", f"/api/v1/nodes/{name}")


SPACE, POLICIES = "computed", 80
NAMESPACE = f"/api/v1/namespaces/{SPACE}"
KUBE_POLICIES = f"/apis/networking.k8s.io/v1/namespaces/{SPACE}/networkpolicies"
TOLD = [
    (plural, node)
    for plural in ("networkpolicies", "appliedtogroups", "addressgroups")
    for node in ("", "n1", "n2")
]


@pytest.fixture
def space(pair: Pair) -> Iterator[Lab]:
    """A Namespace with the account that Pods need, and two Nodes, without which Pods are deleted."""
    lab = pair.leader.lab
    with contextlib.closing(ApiClient(lab)) as client:
        client.call("POST", "/api/v1/namespaces", {"metadata": {"name": SPACE}})
        for name in ("n1", "n2"):
            client.call("POST", "/api/v1/nodes", node(name))
        wait_for(
            "its account",
            lambda: client.call("GET", f"{NAMESPACE}/serviceaccounts/default").status == 200,
            seconds=60,
        )
    yield lab
    with contextlib.closing(ApiClient(lab)) as client:
        for path in (
            f"{NAMESPACE}/pods",
            f"/api/v1/namespaces/{SPACE}",
            "/api/v1/nodes/n1",
            "/api/v1/nodes/n2",
        ):
            client.call("DELETE", f"{path}?gracePeriodSeconds=0")


def write(lab: Lab, numbers: range) -> None:
    """A Pod and a policy that lets the one before it in, each: two of three groups are those of the policy before."""
    with contextlib.closing(ApiClient(lab)) as client:
        for number in numbers:
            ip = f"10.244.9.{number + 1}"
            pod = {
                "metadata": {"name": f"p{number}", "labels": {"app": f"a{number}"}},
                "spec": {"nodeName": f"n{1 + number % 2}", "containers": [{"name": "c", "image": "none"}]},
            }
            assert client.call("POST", f"{NAMESPACE}/pods", pod).status == 201
            status = {"status": {"podIP": ip, "podIPs": [{"ip": ip}]}}
            kind = "application/merge-patch+json"
            assert client.call("PATCH", f"{NAMESPACE}/pods/p{number}/status", status, kind=kind).status == 200
            selectors = [{"podSelector": {"matchLabels": {"app": f"a{one}"}}} for one in (number, number - 1)]
            spec = {**selectors[0], "policyTypes": ["Ingress"], "ingress": [{"from": [selectors[1]]}]}
            policy = {"metadata": {"name": f"p{number}"}, "spec": spec}
            assert client.call("POST", KUBE_POLICIES, policy).status == 201


def told(replica: ControllerProcess, plural: str, node: str = "") -> dict[str, Any]:
    """What a new watch begins with, for one Node or for all: objects by name."""
    found: dict[str, Any] = {}
    query = f"watch=true&timeoutSeconds=30{f'&fieldSelector=nodeName%3D{node}' if node else ''}"
    with contextlib.closing(Direct(replica)) as client:
        client.request("GET", f"{CP}/{plural}?{query}")
        answer = client.getresponse()
        while line := answer.readline():
            event = json.loads(line)
            if event["type"] == "BOOKMARK":
                return found
            one = event["object"]
            one["metadata"].pop("resourceVersion", None)
            one.get("groupMembers", []).sort(key=json.dumps)
            found[one["metadata"]["name"]] = one
    return {}


def world(replica: ControllerProcess) -> dict[tuple[str, str], dict[str, Any]]:
    """All that agents of both Nodes, and one of every Node, are told."""
    return {key: told(replica, *key) for key in TOLD}


@pytest.mark.wide
def test_who_follows_a_leader_that_is_killed_while_it_computes_computes_the_same_and_so_does_who_starts_anew(
    pair: Pair, space: Lab, replicas: Replicas
) -> None:
    def names(replica: ControllerProcess) -> set[str]:
        return {
            one["sourceRef"]["name"]
            for one in told(replica, "networkpolicies").values()
            if one["sourceRef"]["namespace"] == SPACE
        }

    half = POLICIES // 2
    agent = Agent([pair.leader, pair.other], "networkpolicies")
    agent.start()
    try:
        write(space, range(half))
        wait_for("the first half", lambda: len(names(pair.leader)) == half, seconds=60)
        before = world(pair.leader)
        write(space, range(half, POLICIES))
        pair.leader.process.kill()  # the last of them it has just heard of
        pair.leader.process.wait()
        wait_for("all policies", lambda: len(names(pair.other)) == POLICIES, seconds=60)
        after: dict[tuple[str, str], dict[str, Any]] = {}

        def quiet() -> bool:
            """Once nothing changes any more."""
            last = dict(after)
            after.update(world(pair.other))
            return after == last

        wait_for("quiet", quiet, seconds=60, step=0.5)
    finally:
        agent.ended.set()
        agent.join(10)
    assert "DELETED" not in agent.events
    uids = {one["metadata"]["uid"]: one["metadata"]["name"] for one in after["networkpolicies", ""].values()}
    assert all(uid == name for uid, name in uids.items())
    assert len(after["networkpolicies", "n1"]) == len(after["networkpolicies", "n2"]) == half
    for key, objects in before.items():
        assert {name: after[key].get(name) for name in objects} == objects, key
    fresh = replicas.pair()
    for replica in fresh:
        wait_for("all of it", lambda replica=replica: world(replica) == after, seconds=60)  # type: ignore[misc]


def test_a_leader_that_is_told_to_end_hands_over_at_once(pair: Pair) -> None:
    began = time.monotonic()
    pair.leader.process.terminate()
    wait_for(
        "the other to lead",
        lambda: holder(pair.leader.lab) == named(pair.other.port),
        seconds=60,
        step=0.05,
    )
    print(f"handed over after {time.monotonic() - began:.2f} s")
    assert pair.leader.process.wait(60) == 0
    wait_for("a report", lambda: taken(pair.other, "after"), seconds=60, step=0.1)
