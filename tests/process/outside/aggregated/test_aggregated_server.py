"""The server over TLS: who asks, what they may send, and what those cost who do not keep up."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import socket
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import pytest
from aggregated_world import CLIENTS, CP, FORGED, FRONT, OWN, TRUST, client_tls, served
from certificates import made

from antrea.apis.controlplane import NetworkPolicy
from antrea.apis.meta import ObjectMetadata
from antrea.errors import Refused, Unavailable
from antrea.outside.listener.listener import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


async def test_server_knows_its_token_tokens_of_the_cluster_and_nobody_else() -> None:
    path = f"{CP}/networkpolicies"
    async with served() as world:
        assert (await world.ask(path, headers=OWN))[0] == 200
        for _ in range(3):
            assert (await world.ask(path, headers={"Authorization": "Bearer good"}))[0] == 200
        assert len(world.reviews.questions) == 2
        assert (await world.ask(f"{path}/x", headers={"Authorization": "Bearer good"}))[0] == 403
        status, body = await world.ask(path, headers={"Authorization": "Bearer b\u00e4d"})
        assert (status, body["message"]) == (401, "Unauthorized")
        assert (await world.ask(path))[0] == 403
        assert await world.ask("/healthz") == (200, "ok")
        world.reviews.trouble = Unavailable("away")
        assert (await world.ask(path, headers={"Authorization": "Bearer other"}))[0] == 503
        world.reviews.trouble = Refused(["x"], "no right to ask")
        assert (await world.ask(path, headers={"Authorization": "Bearer other"}))[0] == 401
        assert (await world.ask(path, headers=OWN))[0] == 200


async def test_server_judges_a_request_in_the_name_of_whom_it_may_impersonate() -> None:
    path, jane = f"{CP}/networkpolicies", {"Impersonate-User": "jane", "Impersonate-Group": "dev"}
    async with served() as world:
        # the masters may impersonate whomever they like, who is then judged
        assert (await world.ask(path, headers={**OWN, **jane}))[0] == 200
        assert world.reviews.questions[-1]["groups"] == ("dev", "system:authenticated")
        status, body = await world.ask(path, headers={**OWN, "Impersonate-User": "eve"})
        assert (status, 'User "eve" cannot list resource' in body["message"]) == (403, True)
        good = {"Authorization": "Bearer good"}
        status, body = await world.ask(path, headers={**good, "Impersonate-User": "eve"})
        assert (status, 'User "jane" cannot impersonate resource "users"' in body["message"]) == (403, True)
        asked = world.reviews.questions[-1]["resourceAttributes"]
        assert (asked["verb"], asked["resource"], asked["name"]) == ("impersonate", "users", "eve")
        status, body = await world.ask(path, headers=jane)
        assert (status, 'User "system:anonymous" cannot impersonate' in body["message"]) == (403, True)
        assert (await world.ask(path, headers={**good, "Impersonate-Group": "system:masters"}))[0] == 400


async def test_server_refuses_a_token_that_is_no_text_as_any_other_wrong_one() -> None:
    async with served() as world:
        request = f"GET {CP}/networkpolicies HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ".encode()
        reader, writer = await world.opened(request + b"b\xffd\r\n\r\n")
        assert await asyncio.wait_for(reader.readline(), 30) == b"HTTP/1.1 401 Unauthorized\r\n"
        writer.close()


async def test_server_believes_remote_headers_of_the_front_proxys_certificate_alone() -> None:
    path = f"{CP}/networkpolicies"
    async with served() as world:
        proxy = client_tls(made("front-proxy-client", FRONT))
        assert (await world.ask(path, client=proxy, headers=FORGED))[0] == 200
        headers = {"X-Remote-User": "eve", "X-Remote-Extra-Scopes%2fa": "b"}
        assert (await world.ask(path, client=proxy, headers=headers))[0] == 403
        asked = world.reviews.questions[-1]
        assert (asked["user"], asked["groups"], asked["extra"]) == (
            "eve",
            ("system:authenticated",),
            {"scopes/a": ("b",)},
        )
        for client, user in (
            (client_tls(), "system:anonymous"),
            (client_tls(made("front-proxy-client", CLIENTS)), "front-proxy-client"),
        ):
            status, body = await world.ask(path, client=client, headers=FORGED)
            assert (status, f'User "{user}" cannot list' in body["message"]) == (403, True)
        stranger = client_tls(made("other", FRONT))
        assert (await world.ask(path, client=stranger, headers=FORGED))[0] == 401


async def test_server_a_path_may_be_for_one_client_certificate_alone() -> None:
    async with served() as world:
        for client, headers, expected in (
            (client_tls(made("kube-apiserver", CLIENTS)), {}, 200),
            (client_tls(made("kube-apiserver", FRONT)), {}, 401),
            (client_tls(made("kube-apiserver-kubelet-client", CLIENTS)), {}, 403),
            (client_tls(), {}, 403),
            (client_tls(), {"X-Remote-User": "kube-apiserver"}, 403),
            (client_tls(), {"Authorization": "Bearer good"}, 403),
        ):
            status, _ = await world.ask("/hook", method="POST", client=client, headers=headers)
            assert status == expected
        own = client_tls(made("kube-apiserver", CLIENTS))
        assert (await world.ask(f"{CP}/networkpolicies/x", client=own))[0] == 403


async def test_server_foreign_and_expired_certificates_do_not_get_through_tls() -> None:
    async with served() as world:
        for own in (made("admin", groups=("system:masters",)), made("admin", CLIENTS, days=-1)):
            with pytest.raises((aiohttp.ClientError, OSError)):
                await world.ask("/healthz", client=client_tls(own))
        assert await world.ask("/healthz") == (200, "ok")


async def test_server_a_withdrawn_ca_counts_no_more_also_on_connections_that_are_open() -> None:
    path = f"{CP}/networkpolicies"
    async with served() as world:
        connector = aiohttp.TCPConnector(ssl=client_tls(made("jane", CLIENTS)), limit=1)
        proxy = aiohttp.TCPConnector(ssl=client_tls(made("front-proxy-client", FRONT)), limit=1)
        async with (
            aiohttp.ClientSession(connector=connector) as jane,
            aiohttp.ClientSession(connector=proxy) as front,
        ):

            async def statuses() -> tuple[int, int]:
                async with (
                    jane.get(world.url + path) as one,
                    front.get(world.url + path, headers=FORGED) as two,
                ):
                    await asyncio.gather(one.read(), two.read())
                    return one.status, two.status

            assert await statuses() == (200, 200)
            other = made("another", ca=True).pem
            world.authentication.trust = msgspec.structs.replace(TRUST, client_ca=other, front_ca=other)
            assert await statuses() == (401, 401)
            assert world.server.connections == 2


async def test_server_large_bodies_and_headers_are_cut_short() -> None:
    async with served() as world:
        path = f"{CP}/nodestatssummaries"
        big = b"x" * (50 << 20)
        with contextlib.suppress(aiohttp.ClientConnectionError):
            status, body = await world.ask(path, method="POST", headers=OWN, data=io.BytesIO(big))
            assert (status, body["reason"]) == (413, "RequestEntityTooLarge")

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(50):
                yield big[: 1 << 20]

        with contextlib.suppress(aiohttp.ClientConnectionError):
            status, body = await world.ask(path, method="POST", headers=OWN, data=chunks())
            assert status == 413
        status, _ = await world.ask("/healthz", headers={"X-Long": "x" * (1 << 20)})
        assert status == 400
        assert await world.ask("/healthz") == (200, "ok")


async def test_server_says_no_in_status_objects() -> None:
    async with served() as world:
        for path, method, status, reason in (
            (f"{CP}/networkpolicies/none", "GET", 404, "NotFound"),
            (f"{CP}/nothing", "GET", 404, "NotFound"),
            (f"{CP}/networkpolicies", "POST", 405, "MethodNotAllowed"),
            (f"{CP}/networkpolicies", "DELETE", 405, "MethodNotAllowed"),
            (f"{CP}/networkpolicies/a/status", "GET", 405, "MethodNotAllowed"),
            (f"{CP}/networkpolicies/a/nothing", "GET", 404, "NotFound"),
            (f"{CP}/namespaces/a/networkpolicies", "GET", 404, "NotFound"),
            (f"{CP}/groupmembers/a", "GET", 404, "NotFound"),
            (f"{CP}/clustergroupmembers", "GET", 404, "NotFound"),
            (f"{CP}/clustergroupmembers?watch=1", "GET", 404, "NotFound"),
            (f"{CP}/namespaces/a/groupmembers", "GET", 404, "NotFound"),
            (f"{CP}/nodestatssummaries", "GET", 405, "MethodNotAllowed"),
            (f"{CP}/nodestatssummaries/a", "GET", 404, "NotFound"),
            (f"{CP}/clustergroupmembers/broken", "GET", 500, "InternalError"),
            (f"{CP}/clustergroupmembers/away", "GET", 503, "ServiceUnavailable"),
            ("/healthz", "POST", 405, "MethodNotAllowed"),
        ):
            code, body = await world.ask(path, method=method, headers=OWN)
            assert (path, code, body["reason"]) == (path, status, reason)
        assert await world.ask("/nothing", headers=OWN) == (404, "404 page not found\n")


async def test_server_answers_are_for_their_caller_alone_and_say_nothing_of_what_serves() -> None:
    watch = f"{CP}/networkpolicies?watch=true&timeoutSeconds=1"
    async with served() as world:
        connector = aiohttp.TCPConnector(ssl=client_tls())
        async with aiohttp.ClientSession(world.url, connector=connector, headers=OWN) as session:
            for path in ("/healthz", "/apis", f"{CP}/networkpolicies", watch, "/nowhere", "/openapi/v3"):
                async with session.get(path) as answer:
                    found = {name.lower(): value for name, value in answer.headers.items()}
                    assert (found["cache-control"], found["x-content-type-options"]) == (
                        "no-cache, private",
                        "nosniff",
                    )
                    assert "server" not in found


async def test_server_documents_are_known_by_their_tag() -> None:
    async with served() as world:
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_tls()), headers=OWN) as session,
            session.get(f"{world.url}/openapi/v2") as first,
        ):
            tag = first.headers["ETag"]
            assert (await first.json())["swagger"] == "2.0"
            async with session.get(f"{world.url}/openapi/v2", headers={"If-None-Match": tag}) as again:
                assert again.status == 304
        _, index = await world.ask("/openapi/v3", headers=OWN)
        for row in index["paths"].values():
            assert (await world.ask(row["serverRelativeURL"], headers=OWN))[0] == 200
        accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
        _, found = await world.ask("/apis", headers={**OWN, "Accept": accept})
        assert found["kind"] == "APIGroupDiscoveryList"
        _, found = await world.ask("/apis", headers=OWN)
        assert [group["name"] for group in found["groups"]] == [
            "controlplane.antrea.io",
            "stats.antrea.io",
            "system.antrea.io",
        ]


async def test_server_a_watch_ends_in_time_and_whatever_version_it_asks_for_begins_anew() -> None:
    path = f"{CP}/networkpolicies?watch=true&resourceVersion=nonsense&timeoutSeconds=1"
    async with served() as world:
        world.policies.put("a", NetworkPolicy(metadata=ObjectMetadata(name="a")), frozenset({"n1"}))
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_tls()), headers=OWN) as session,
            session.get(world.url + path) as answer,
        ):
            events = [json.loads(line)["type"] for line in (await answer.text()).splitlines()]
        assert events == ["ADDED", "BOOKMARK"]
        assert world.policies.watchers() == []


async def test_server_who_sends_nothing_makes_room_for_who_does() -> None:
    async with served(Limits(connections=8, new=4, first_request_seconds=60)) as world:
        with contextlib.ExitStack() as silent:
            for _ in range(20):
                silent.enter_context(socket.create_connection(("127.0.0.1", world.port)))
            # more than may wait: the oldest have gone, and a request gets through
            assert await world.ask("/healthz") == (200, "ok")


async def test_server_who_does_not_end_a_first_request_is_cut_off() -> None:
    async with served(Limits(first_request_seconds=0.5)) as world, asyncio.timeout(30):
        silent, writer = await asyncio.open_connection("127.0.0.1", world.port)
        # on a slow machine that may come in the middle of the handshake
        with contextlib.suppress(OSError):
            half, more = await world.opened(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
            assert await half.read() == b""
            more.close()
        with contextlib.suppress(ConnectionResetError):
            assert await silent.read() == b""
        writer.close()


async def test_server_a_connection_that_is_kept_in_spare_is_good_for_a_later_request() -> None:
    """The API server opens some that it does not use at once; what it asked just as one was closed came back as an error."""
    async with served(Limits(first_request_seconds=2)) as world, asyncio.timeout(60):
        spare, writer = await world.opened()
        slow, other = await asyncio.open_connection("127.0.0.1", world.port)
        with contextlib.suppress(ConnectionResetError):
            assert await slow.read() == b""  # it came later, and its time is over
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await spare.readline() == b"HTTP/1.1 200 OK\r\n"
        for one in (writer, other):
            one.close()


async def test_server_ends_after_what_it_is_asked_for_and_sends_callers_elsewhere_before() -> None:
    watching = (
        f"GET {CP}/networkpolicies?watch=true HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\r\n"
    )
    async with served() as world, asyncio.timeout(60):
        slow, asks = await world.opened(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        watch, watches = await world.opened(watching.encode())
        assert await watch.readline() == b"HTTP/1.1 200 OK\r\n"
        await world.asked.wait()
        farewell = asyncio.ensure_future(world.server.farewell(3600))
        with contextlib.suppress(ConnectionResetError):
            await watch.read()
        late, writer = await world.opened(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        head, _, body = (await late.read()).partition(b"\r\n\r\n")
        assert (b"Connection: close" in head.splitlines(), body) == (True, b"ok")
        assert (await world.ask(f"{CP}/networkpolicies", headers=OWN))[0] == 503
        farewell.cancel()
        world.running.cancel()
        while not world.running.done() and _listens(world.port):  # noqa: ASYNC110 (there is no event)
            await asyncio.sleep(0.01)
        await asyncio.wait({world.running}, timeout=0.2)
        world.may_answer.set()
        assert (await slow.read()).endswith(b"\r\n\r\nat last")
        for one in (asks, watches, writer):
            one.close()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


async def test_server_a_watcher_that_does_not_read_is_cut_off_and_others_go_on() -> None:
    head = f"GET {CP}/networkpolicies?watch=true HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\r\n"
    async with served() as world:
        _, stalled = await world.opened(head.encode())
        stalled.transport.pause_reading()  # type: ignore[attr-defined]
        async with asyncio.timeout(60):
            while len(world.policies.watchers()) < 1:  # noqa: ASYNC110 (there is no event)
                await asyncio.sleep(0.01)
            name = "x" * 30_000
            number = 0
            while world.policies.watchers():
                number += 1
                meta = ObjectMetadata(name="a", generation=number, uid=name)
                world.policies.put("a", NetworkPolicy(metadata=meta))
                await asyncio.sleep(0)
        assert (await world.ask(f"{CP}/networkpolicies/a", headers=OWN))[1]["metadata"][
            "generation"
        ] == number
        stalled.transport.abort()
