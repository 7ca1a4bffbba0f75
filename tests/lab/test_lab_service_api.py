"""The Service API row by row: the same test runs where AntreaProxy serves all Services and where kube-proxy does."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from service_rows import (
    NODE_PORT,
    OTHERWISE,
    REFUSED,
    ROWS,
    SILENT,
    SIX,
    UDP,
    UNSERVED,
    A,
    B,
    End,
    Row,
    slice_of,
)
from service_world import SIDES, World, serving

from lab.process import wait_for

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    Answers = dict[tuple[str, str], frozenset[str] | str]

pytestmark = pytest.mark.wide
PLAIN = {row.ipv6: row for row in ROWS if row.plain_name == "plain"}
six = pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
STAY_SECONDS = 6
MAX_CONCURRENT = 8
"""Rows that are asked at the same time."""
UDP_CLIENT = """
import socket, sys, time
client = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET, socket.SOCK_DGRAM)
client.settimeout(0.3)
client.connect((sys.argv[1], int(sys.argv[2])))
last = ""
while True:
    try:
        client.send(b"hostname")
        found = client.recv(99).decode()
    except OSError:
        continue
    if found != last:
        print(last := found, flush=True)
    time.sleep(0.1)
"""
"""Sends from one port for as long as it runs; each line is the name of a Pod that has taken over."""


@pytest.fixture(scope="module", params=list(SIDES))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with serving(request.param) as found:
        yield found


def fits(found: Collection[str] | None, wanted: Collection[str]) -> bool:
    return found in (REFUSED, SILENT) if wanted == UNSERVED else found == wanted


def answered(world: World, row: Row, who: str, where: str) -> frozenset[str] | str:
    return world.asked(who, world.place(row, where), udp=row.protocol == "UDP")


def wanted_by(world: World, row: Row) -> Answers:
    """What a row is about, as the proxy of this lab answers."""
    return row.answers | OTHERWISE.get(world.side, {}).get(row.plain_name, {})


@pytest.fixture(scope="module")
def first(world: World) -> dict[str, Answers]:
    """First answers of all rows, by name, at once: most of the time goes by in waiting for those that are silent."""
    asked = [(row, *end) for row in ROWS for end in wanted_by(world, row)]
    with ThreadPoolExecutor(MAX_CONCURRENT) as pool:
        answers = pool.map(lambda one: answered(world, *one), asked)
        found: dict[str, Answers] = {row.name: {} for row in ROWS}
        for (row, *end), answer in zip(asked, answers, strict=True):
            found[row.name][end[0], end[1]] = answer
    return found


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_a_service_is_answered_as_its_row_says(world: World, first: dict[str, Answers], row: Row) -> None:
    """What was answered otherwise at first, as Services were just made, is asked again."""
    found, wanted_of = first[row.name], wanted_by(world, row)

    def same() -> bool:
        for (who, where), wanted in wanted_of.items():
            if not fits(found.get((who, where)), wanted):
                found[who, where] = answered(world, row, who, where)
        return all(fits(found[asked], wanted) for asked, wanted in wanted_of.items())

    try:
        wait_for(f"answers of Service {row.name}", same, seconds=40)
    except Exception as error:
        error.add_note(f"{found} instead of {wanted_of}")
        raise


@pytest.fixture
def sticky(world: World, six: bool) -> Iterator[None]:
    """Service `plain` with affinity of a few seconds."""
    config = {"clientIP": {"timeoutSeconds": STAY_SECONDS}}
    for spec in (
        {"sessionAffinity": "ClientIP", "sessionAffinityConfig": config},
        {"sessionAffinity": "None"},
    ):
        patch = ("patch", "service", PLAIN[six].name, "--type=merge", "-p", json.dumps({"spec": spec}))
        world.lab.api.kubectl(*patch)
        if spec["sessionAffinity"] != "None":
            yield


@six
def test_a_client_stays_with_its_endpoint_for_the_seconds_of_the_service(
    world: World, sticky: None, six: bool
) -> None:
    target = world.place(PLAIN[six], "cluster")
    for who in ("client", "node-2"):
        wait_for("one Endpoint", lambda: len(world.asked(who, target)) == 1, seconds=40)  # noqa: B023

    def moved() -> bool:
        first = world.once("client", target)
        time.sleep(STAY_SECONDS + 1)
        return world.once("client", target) != first

    wait_for("another Endpoint after these seconds", moved, seconds=120)


@six
@pytest.mark.parametrize("who", ["client", "node-1", "outside"])
def test_a_udp_client_moves_to_the_endpoint_that_takes_over(world: World, who: str, six: bool) -> None:
    """It goes on from the same port, so that connection tracking would send it to the one that is gone."""
    api = world.lab.api
    row = Row(f"udp-{who}{SIX if six else ''}", UDP, (End("a"), End("b")), {}, ipv6=six)
    first, second = (world.slice(row, end) for end in row.ends)
    spec = {**NODE_PORT, **UDP, "ipFamilies": ["IPv6" if six else "IPv4"]}
    api.apply(
        json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": row.name}, "spec": spec})
    )
    api.apply(json.dumps(first))
    made = json.loads(api.kubectl("get", "service", row.name, "-o", "json"))["spec"]
    inside = who != "outside"
    outer = (world.node("node-1", ipv6=six), made["ports"][0]["nodePort"])
    ip, number = (made["clusterIP"], 80) if inside else outer
    words = world.network(who, [sys.executable, "-c", UDP_CLIENT, ip, str(number)])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline().strip() == "a"
            api.kubectl("delete", "endpointslice", f"{row.name}-a")
            api.apply(json.dumps(second))
            assert client.stdout.readline().strip() == "b"
        finally:
            client.kill()
            api.kubectl("delete", "service", row.name, "--wait=false")


def told(world: World, url: str) -> tuple[str, Any]:
    """The HTTP status that the host outside gets, and the body."""
    words = ["curl", "-sS", "--max-time", "3", "-w", "\n%{http_code}", url]
    done = subprocess.run(world.inside("outside", words), capture_output=True, text=True, check=False)
    body, _, code = done.stdout.rpartition("\n")
    return code, json.loads(body or "null")


def test_a_load_balancer_is_told_which_nodes_have_endpoints(world: World) -> None:
    port = world.specs["balanced-local"]["healthCheckNodePort"]
    about = {"service": {"namespace": "default", "name": "balanced-local"}, "serviceProxyHealthy": True}
    for name, code, count in (("node-1", "200", 1), ("node-2", "503", 0)):
        url, wanted = f"http://{world.node(name)}:{port}", (code, {**about, "localEndpoints": count})
        wait_for(f"the health check of {name}", lambda: told(world, url) == wanted, seconds=40)  # noqa: B023


def test_the_proxy_of_a_node_tells_its_own_health(world: World) -> None:
    for path, node in (("healthz", {"nodeEligible": True}), ("livez", {})):
        code, body = told(world, f"http://{world.node('node-2')}:10256/{path}")
        assert code == "200"
        times = {key: body.pop(key) for key in ("lastUpdated", "currentTime")}
        assert all(times.values())
        assert body.pop("status")["IPv4"]["healthy"] is True
        assert body == {"healthy": True, **node}


@pytest.mark.parametrize("world", ["antrea"], indirect=True)
def test_of_two_services_with_one_external_ip_the_older_has_it(world: World) -> None:
    """kube-proxy has no rule for that."""
    api = world.lab.api
    claims = [
        Row(name, {"externalIPs": ["198.51.100.30"]}, (End(pod),), {})
        for name, pod in (("older", "a"), ("younger", "b"))
    ]
    for row in claims:
        port = {"name": "http", "port": 80}
        spec = {"ports": [port], **row.spec}
        api.apply(
            json.dumps({"apiVersion": "v1", "kind": "Service", "metadata": {"name": row.name}, "spec": spec})
        )
        api.apply(json.dumps(slice_of(row, row.ends[0], world.pods)))
        time.sleep(1.1)  # creation times have seconds
    try:
        for who in ("outside", "client", "node-2"):
            wait_for("the older", lambda: world.asked(who, "198.51.100.30:80") == A, seconds=40)  # noqa: B023
        events = ("get", "events", "--field-selector", "reason=ExternalIPConflict", "-o", "json")

        def named() -> bool:
            found = json.loads(api.kubectl(*events))["items"]
            return {one["involvedObject"]["name"] for one in found} == {"younger"}

        wait_for("an Event of the younger", named, seconds=40)
        api.kubectl("delete", "service", "older")
        wait_for("the younger", lambda: world.asked("outside", "198.51.100.30:80") == B, seconds=40)
    finally:
        api.kubectl("delete", "service", "older", "younger", "--ignore-not-found", "--wait=false")
