"""Who has proved nothing costs others nothing: places, and questions to the API server."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import aiohttp
from aggregated_world import CP, FORGED, FRONT, client_tls, served
from certificates import made

from antrea.errors import Refused
from antrea.outside.apiserver.authentication import FRONT_ADDRESS
from antrea.outside.apiserver.failure_limit import BURST, PER_SECOND, FailureLimit
from antrea.outside.apiserver.issued_token import IssuedTokens
from antrea.outside.listener.listener import Limits

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable


def unforgiving() -> FailureLimit:
    """For which no time passes: what is spent stays so, however long the next connection takes."""
    return FailureLimit(lambda: 0.0)


async def test_server_strangers_who_stay_take_no_place_from_who_has_a_token() -> None:
    async with served(Limits(connections=12, new=4, strangers=6)) as world, asyncio.timeout(60):
        writers = []
        for _ in range(30):
            reader, writer = await world.opened(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            writers.append(writer)
        assert world.server.connections <= 6
        for _ in range(12):
            # who has proved who he is keeps his place
            head = f"GET {CP}/networkpolicies?watch=true HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\r\n"
            reader, writer = await world.opened(head.encode())
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            writers.append(writer)
        assert len(world.policies.watchers()) == 12
        for writer in writers:
            writer.transport.abort()


async def test_server_one_token_cannot_hold_all_connections() -> None:
    async with served(Limits(connections=40, of_one=5)) as world, asyncio.timeout(60):
        held: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def ask(proof: str, **more: Any) -> asyncio.StreamReader:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", world.port, ssl=more.pop("tls", None) or client_tls(), **more
            )
            writer.write(f"GET {CP}/networkpolicies HTTP/1.1\r\nHost: a\r\n{proof}\r\n\r\n".encode())
            assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
            held.append((reader, writer))
            return reader

        others = [
            await ask("Authorization: Bearer good", local_addr=("127.0.0.2", 0)),
            *[await ask("Authorization: Bearer secret") for _ in range(6)],
            *[
                await ask("X-Remote-User: jane", tls=client_tls(made("front-proxy-client", FRONT)))
                for _ in range(6)
            ],
        ]
        mine = [await ask("Authorization: Bearer good") for _ in range(20)]
        # the one that has been idle for longest makes room for the next of the same user
        for reader in mine[:15]:
            with contextlib.suppress(ConnectionError):
                await reader.read()
        assert [reader.at_eof() for reader in (*others, *mine[15:])] == [False] * (len(others) + 5)
        for _, writer in held:
            writer.transport.abort()


async def test_server_random_tokens_cost_the_api_server_little_and_lock_nobody_out() -> None:
    path = f"{CP}/networkpolicies"
    async with served() as world, asyncio.timeout(120):
        await world.ask(path, headers={"Authorization": "Bearer good"})
        connector = aiohttp.TCPConnector(ssl=client_tls(), limit=20)
        async with aiohttp.ClientSession(world.url, connector=connector) as session:

            async def guess(number: int) -> int:
                async with session.get(path, headers={"Authorization": f"Bearer {number}"}) as answer:
                    await answer.read()
                    return answer.status

            begun = asyncio.get_running_loop().time()
            statuses = await asyncio.gather(*map(guess, range(400)))
            took = asyncio.get_running_loop().time() - begun
        asked = sum("token" in question for question in world.reviews.questions)
        assert asked <= BURST + PER_SECOND * took + 2
        assert (set(statuses), statuses.count(401) == asked - 1) == ({401, 429}, True)
        # a token that was good before counts, from the same address, also when its verdict has expired
        world.authentication._tokens._known.clear()
        assert (await world.ask(path, headers={"Authorization": "Bearer good"}))[0] == 200
        # and so does one that nobody has seen, from another address
        other = aiohttp.TCPConnector(ssl=client_tls(), local_addr=("127.0.0.2", 0))
        async with (
            aiohttp.ClientSession(world.url, connector=other) as session,
            session.get(path, headers={"Authorization": "Bearer fine"}) as answer,
        ):
            assert answer.status == 200


@contextlib.asynccontextmanager
async def one_connection(url: str, path: str) -> AsyncIterator[Callable[[str], Awaitable[int]]]:
    """Gives the status for a token; all are sent by the same connection."""
    connector = aiohttp.TCPConnector(ssl=client_tls(), limit=1, keepalive_timeout=600)
    async with aiohttp.ClientSession(url, connector=connector) as session:

        async def ask(token: str) -> int:
            async with session.get(path, headers={"Authorization": f"Bearer {token}"}) as answer:
                await answer.read()
                return answer.status

        yield ask


async def test_server_a_connection_that_has_proved_itself_may_bring_the_next_token() -> None:
    path = f"{CP}/networkpolicies"
    async with served() as world, asyncio.timeout(120), one_connection(world.url, path) as ask:
        world.authentication._failures = unforgiving()
        assert await ask("good") == 200
        await asyncio.gather(*(world.ask(path, headers={"Authorization": f"Bearer {n}"}) for n in range(30)))
        assert (await world.ask(path, headers={"Authorization": "Bearer new"}))[0] == 429
        assert await ask("fine") == 200


async def test_server_who_has_proved_himself_cannot_have_any_number_of_tokens_reviewed() -> None:
    path = f"{CP}/networkpolicies"
    async with served() as world, asyncio.timeout(120):
        async with one_connection(world.url, path) as ask:
            begun = asyncio.get_running_loop().time()
            statuses = [await ask("good" if number % 2 == 0 else f"{number}") for number in range(120)]
            took = asyncio.get_running_loop().time() - begun
        asked = [question["token"] for question in world.reviews.questions if "token" in question]
        assert len(asked) - asked.count("good") <= BURST + PER_SECOND * took + 1
        assert (set(statuses[::2]), set(statuses[1::2])) == ({200}, {401, 429})


async def test_server_strangers_cannot_have_any_number_of_rights_reviewed() -> None:
    async with served() as world, asyncio.timeout(120):
        connector = aiohttp.TCPConnector(ssl=client_tls(), limit=20)
        async with aiohttp.ClientSession(world.url, connector=connector) as session:

            async def ask(path: str) -> int:
                async with session.get(path) as answer:
                    await answer.read()
                    return answer.status

            begun = asyncio.get_running_loop().time()
            paths = (f"{CP}/networkpolicies/{n}" if n % 2 else f"/nothing/{n}" for n in range(400))
            statuses = await asyncio.gather(*map(ask, paths))
            took = asyncio.get_running_loop().time() - begun
            assert len(world.reviews.questions) <= BURST + PER_SECOND * took + 1
            assert set(statuses) == {403, 429}
            # what is everybody's stays so
            assert await ask("/healthz") == 200
        # and who has a token is judged by his rights alone
        path = f"{CP}/networkpolicies"
        assert (await world.ask(path, headers={"Authorization": "Bearer secret"}))[0] == 200


async def test_server_knows_addresses_of_the_api_server_by_its_aggregation_layer() -> None:
    async with served() as world, asyncio.timeout(60):
        trusted: list[bool] = []

        async def look(request: aiohttp.web.Request) -> aiohttp.web.StreamResponse:
            trusted.append(request[FRONT_ADDRESS])
            return aiohttp.web.Response(text="ok")

        world.server._handlers = {("GET", "/healthz"): look}
        await world.ask("/healthz")
        # what claims to be it without its certificate is nobody
        await world.ask("/healthz", headers=FORGED)
        front = client_tls(made("front-proxy-client", FRONT))
        await world.ask("/healthz", client=front, headers={"X-Remote-User": "jane"})
        await world.ask("/healthz")
        other = aiohttp.TCPConnector(ssl=client_tls(), local_addr=("127.0.0.2", 0))
        async with (
            aiohttp.ClientSession(world.url, connector=other) as session,
            session.get("/healthz") as answer,
        ):
            assert answer.status == 200
        assert trusted == [False, False, True, True, False]


async def test_server_a_new_token_of_the_api_server_counts_whatever_others_of_its_address_did() -> None:
    path = f"{CP}/networkpolicies"
    async with served() as world, asyncio.timeout(120):

        async def ask(token: str) -> int:
            return (await world.ask(path, headers={"Authorization": f"Bearer {token}"}))[0]

        mine = [world.reviews.token(number) for number in range(5)]
        # what only looks like one counts as any other: of another signature, of an unknown key, expired
        parts = mine[0].split(".")
        forged = [f"{parts[0]}.{parts[1]}.{'A' * 86}{n}" for n in range(10)] + ["a.b.c", "..", f"{mine[0]}."]
        expired, unknown = world.reviews.token(9, seconds=-5), world.reviews.token(9, kid="k2")
        world.reviews.signed -= {expired, unknown}
        world.authentication._failures = unforgiving()
        assert 429 in await asyncio.gather(
            *map(ask, (*forged, expired, unknown, *(f"{n}" for n in range(30))))
        )
        assert [await ask(token) for token in mine] == [403] * len(mine)
        # one that was withdrawn is known by its signature, and good for nothing
        world.reviews.signed.clear()
        assert await ask(world.reviews.token(7)) == 403
        world.reviews.signed.clear()
        world.authentication._tokens._known.clear()
        assert await ask(mine[0]) == 401
        assert world.reviews.read_keys < 5


async def test_server_tokens_are_reviewed_while_the_keys_cannot_be_read() -> None:
    path = f"{CP}/networkpolicies"
    async with served() as world, asyncio.timeout(60):
        token = world.reviews.token(1)
        world.authentication._issued = IssuedTokens(Nothing())
        assert (await world.ask(path, headers={"Authorization": f"Bearer {token}"}))[0] == 403


class Nothing:
    """It publishes no keys."""

    async def get(self, path: str, kind: type) -> None:
        raise Refused([path], "forbidden")
