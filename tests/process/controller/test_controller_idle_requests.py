"""The controller's Events about annotations and objects that nothing acts on: one on each object, however often it is received."""

from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from certificate_world import ApiServer, api_server

from antrea.apis import core
from antrea.controller.managed import idle_requests
from antrea.controller.managed.idle_requests import IdleRequestEvents, stored_collections

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from antrea.outside.kube.client import Kube

PODS = "/api/v1/pods"
POOL = "ipam.antrea.io/ippools"
ADDRESSES = "ipam.antrea.io/pod-ips"


def pod(name: str, namespace: str = "shop", /, **annotations: str) -> core.Pod:
    meta = core.ObjectMeta(name=name, namespace=namespace, uid=f"uid-{name}", annotations=annotations)
    return core.Pod(metadata=meta)


@asynccontextmanager
async def telling(kube: Kube) -> AsyncIterator[IdleRequestEvents]:
    events = IdleRequestEvents(kube, pause=0)
    running = asyncio.create_task(events.run())
    yield events
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def told(server: ApiServer) -> list[tuple[str, str, str]]:
    found = [one for path, one in server.objects.items() if "/events/" in path]
    return [(one["involvedObject"]["name"], one["type"], one["message"]) for one in found]


async def until(server: ApiServer, writes: int) -> None:
    async with asyncio.timeout(30):
        while len(server.writes) < writes:  # noqa: ASYNC110 (no event)
            await asyncio.sleep(0.01)


async def test_an_object_has_one_event_however_often_it_is_heard_of_and_by_whom() -> None:
    async with api_server({}) as (server, kube), telling(kube) as one, telling(kube) as other:
        for events in (one, one, other):
            events.note(PODS, pod("plain", note="x"))
            events.note(PODS, pod("web", **{POOL: "p"}))
        await until(server, 2)
        assert [(name, kind) for name, kind, _ in told(server)] == [("web", "Warning")]
        assert POOL in told(server)[0][2]
        # another key is another matter
        one.note(PODS, pod("web", **{POOL: "p", ADDRESSES: "10.0.0.9"}))
        await until(server, 3)
        assert len(told(server)) == 2
        assert ADDRESSES in told(server)[1][2]


async def test_an_event_waits_for_the_api_server_and_a_refused_one_does_not_come_back() -> None:
    async with api_server({}) as (server, kube), telling(kube) as events:
        server.refuse = "not you"
        events.note(PODS, pod("web", **{POOL: "p"}))
        await until(server, 1)
        server.refuse = ""
        events.note(PODS, pod("db", **{POOL: "p"}))
        await until(server, 2)
        assert [name for name, *_ in told(server)] == ["db"]


SERVICES = "/api/v1/services"
NODE_CONFIGS = "/apis/crd.antrea.io/v1alpha1/antreanodeconfigs"
CONTROL = "/apis/crd.antrea.io/v1alpha2/trafficcontrols"
MODE = "service.antrea.io/load-balancer-mode"
FILES = {"antrea-agent.conf": "", "antrea-controller.conf": ""}


def service(name: str, **annotations: str) -> core.Service:
    meta = core.ServiceMeta(name=name, namespace="shop", uid=f"uid-{name}", annotations=annotations)
    return core.Service(metadata=meta)


def stored(name: str) -> core.OnlyMetadata:
    return core.OnlyMetadata(metadata=core.ObjectMeta(name=name, uid=f"uid-{name}"))


def reasons(server: ApiServer) -> dict[tuple[str, str], str]:
    found = [one for path, one in server.objects.items() if "/events/" in path]
    return {(one["involvedObject"]["name"], one["reason"]): one["message"] for one in found}


async def test_what_is_off_is_told_once_the_configuration_of_agents_is_known() -> None:
    async with api_server({}) as (server, kube), telling(kube) as events:
        events.note(SERVICES, service("direct", **{MODE: "dsr"}))
        events.note(SERVICES, service("plain", **{MODE: "nat"}))
        events.note(SERVICES, service("typo", **{MODE: "drs"}))
        events.note(NODE_CONFIGS, stored("peers"))
        events.note(CONTROL, stored("mirror"))
        await until(server, 2)
        assert reasons(server) == {
            ("typo", "AnnotationInvalid"): f"annotation {MODE}: 'drs' has no effect: expected is nat or dsr",
            (
                "peers",
                "FeatureNotBuilt",
            ): "the feature AntreaNodeConfig is not built yet: nothing acts on this object",
        }
        events.take_gates(FILES)
        await until(server, 4)
        off = "the feature gate {} is off in antrea-agent.conf"
        assert reasons(server)["direct", "FeatureGateDisabled"] == (
            f"annotation {MODE}: {off.format('LoadBalancerModeDSR')}: connections are translated, as with nat"
        )
        assert reasons(server)["mirror", "FeatureGateDisabled"] == (
            f"{off.format('TrafficControl')}: nothing acts on this object"
        )
        # gates that are turned on have nothing more to tell
        on = "featureGates: {LoadBalancerModeDSR: true, TrafficControl: true}"
        events.take_gates({**FILES, "antrea-agent.conf": on})
        events.note(PODS, pod("web", **{POOL: "p"}))
        await until(server, 5)
        assert len(reasons(server)) == 5


async def test_an_event_names_an_object_of_a_cluster_wide_kind_with_its_api_version() -> None:
    async with api_server({}) as (server, kube), telling(kube) as events:
        events.note(NODE_CONFIGS, stored("peers"))
        await until(server, 1)
        ((path, found),) = ((path, one) for path, one in server.objects.items() if "/events/" in path)
        assert path.startswith("/api/v1/namespaces/default/events/")
        about = found["involvedObject"]
        assert (about["kind"], about["apiVersion"]) == ("AntreaNodeConfig", "crd.antrea.io/v1alpha1")


def test_kinds_that_may_have_no_feature_behind_them_are_read() -> None:
    plurals = [path.rpartition("/")[2] for path in stored_collections([])]
    assert sorted(plurals) == [
        "antreanodeconfigs", "bgppolicies", "externalentities", "externalnodes", "flowexporterdestinations", "ippools",
        "nodelatencymonitors", "packetcaptures", "trafficcontrols",
    ]  # fmt: skip
    assert CONTROL not in stored_collections([CONTROL])


async def test_what_is_remembered_is_bounded() -> None:
    async with api_server({}) as (_, kube):
        events = IdleRequestEvents(kube)
        for number in range(idle_requests.MAX_OBJECTS + 10):
            events.note(PODS, pod(f"s{number}", **{POOL: "p"}))
        assert (len(events._reported), len(events._waiting)) == (
            idle_requests.MAX_OBJECTS,
            idle_requests.MAX_OBJECTS,
        )


async def test_many_objects_of_a_namespace_delay_and_displace_no_event_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(idle_requests, "MAX_OBJECTS", 50)
    async with api_server({}) as (server, kube):
        events = IdleRequestEvents(kube, pause=0)
        events.note(PODS, pod("before", "quiet", **{POOL: "p"}))
        for number in range(200):
            events.note(PODS, pod(f"web-{number}", "loud", **{POOL: "p"}))
        events.note(PODS, pod("after", "calm", **{POOL: "p"}))
        running = asyncio.create_task(events.run())
        await until(server, 50)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        names = [name for name, *_ in told(server)]
        assert {"before", "after"} <= {*names[:3]}
        assert len(names) == 50


async def test_an_event_on_an_object_with_the_longest_name_has_a_name_that_kubernetes_takes() -> None:
    longest = "a" * 61 + ("." + "b" * 63) * 3
    async with api_server({}) as (server, kube), telling(kube) as events:
        about = core.ObjectReference("Pod", longest, "shop", "u", "v1")
        events.note(PODS, pod(longest, **{POOL: "p"}))
        await kube.create_event(about, "Reason", "message")
        await until(server, 2)
        names = [one["metadata"]["name"] for path, one in server.objects.items() if "/events/" in path]
    assert len(longest) == 253
    assert len({*names}) == 2
    assert all(len(name) <= 253 and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name) for name in names)
    assert not any(".." in name or "-." in name for name in names)
