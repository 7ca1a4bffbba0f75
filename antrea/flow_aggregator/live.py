"""Records as they come, for users who follow them: server-sent events, with the filters and rights of the queries.

All followers read one ring of the newest records, each from its own place: a slow one costs the others nothing, and its
next event has the number of records that it missed.
Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
"""

from __future__ import annotations

import asyncio
import secrets
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

from antrea.apis.flow import RuleAction
from antrea.errors import Unavailable
from antrea.flow_aggregator.clickhouse_output import WRITTEN, values_of
from antrea.flow_aggregator.flow_buffer import FlowBuffer
from antrea.flow_aggregator.query_scope import scope_of
from antrea.flow_aggregator.query_statement import SCOPED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antrea.apis.flow import FlowRecord

    Test = Callable[[FlowRecord], bool]

FILTERS: Final = tuple(name for name in SCOPED if name not in ("since", "until"))
"""Parameters of a stream."""
KEPT: Final = 4096
"""Records that a follower may be behind."""
MAX_ROWS: Final = 200
"""Records of one event, the newest."""
MAX_FOLLOWERS: Final = 64
MAX_FOLLOWERS_OF_USER: Final = 8
PAUSE: Final = 0.25
"""Seconds between looks for what has come."""
SILENCE: Final = 15.0
"""Seconds without an event after which a comment is sent, so that nothing in between takes the stream for dead."""
MAX_SECONDS: Final = 50.0
"""Seconds of a stream; for more, a client asks again with Last-Event-ID, and its rights are judged anew."""
_DENIED: Final = (RuleAction.DROP, RuleAction.REJECT)
_ENDS: Final = ("source", "destination")
_WAYS: Final = ("ingress", "egress")


class LiveRecords:
    """The newest records."""

    def __init__(self) -> None:
        self._ring: FlowBuffer[tuple[FlowRecord, bool]] = FlowBuffer(KEPT)
        self._run = secrets.token_hex(4)
        self._followers: dict[str, list[asyncio.Event]] = {}
        """Events that end the streams of each user, the oldest first."""

    def add(self, record: FlowRecord, *, is_half: bool = False) -> None:
        """Show it to those who follow; it is not changed from now on.

        `is_half`: it is one Node's, and the other's is awaited, so that its ends may be in Namespaces that are not known yet.
        """
        self._ring.offer((record, is_half))

    def place_of(self, event: str) -> int:
        """The number after which a client reads that has seen this event; without one, or with one of another run, it gets the newest MAX_ROWS.

        What a client has queried before does not have what came since.
        """
        run, _, number = event.partition("-")
        known = run == self._run and number.isascii() and number.isdecimal() and len(number) < 20
        return min(int(number), self._ring.end) if known else max(self._ring.end - MAX_ROWS, 0)

    def after(self, number: int, passes: Test, *, halves: bool) -> tuple[list[FlowRecord], int]:
        """Return matching records since `number`, oldest first and at most MAX_ROWS, and how many more there were."""
        new, gone = self._ring.after(number, KEPT)
        records = [record for record, is_half in new if (halves or not is_half) and passes(record)]
        return records[-MAX_ROWS:], gone + max(len(records) - MAX_ROWS, 0)

    async def follow(
        self, request: web.Request, user: str, parameters: Mapping[str, str], namespaces: Sequence[str] | None
    ) -> web.StreamResponse:
        """Stream records until the client leaves, or for MAX_SECONDS seconds. Raises Invalid naming a parameter, Unavailable if too many streams are open."""
        passes = matcher(parameters, namespaces)
        ended = self._begin(user)
        try:
            return await self._send(request, passes, ended, halves=namespaces is None)
        finally:
            self._end(user, ended)

    def _begin(self, user: str) -> asyncio.Event:
        """Return what ends this stream; a user with more streams makes room if there are too many. Raises Unavailable."""
        streams = len(self._followers.get(user, ()))
        if streams >= MAX_FOLLOWERS_OF_USER:
            raise Unavailable(f"you follow records {streams} times already: close a page, or try again later")
        if sum(map(len, self._followers.values())) >= MAX_FOLLOWERS:
            most = max(self._followers, key=lambda follower: len(self._followers[follower]))
            if len(self._followers[most]) <= streams + 1:
                raise Unavailable(f"{MAX_FOLLOWERS} clients follow records already: try again later")
            oldest = self._followers[most][0]
            oldest.set()
            self._end(most, oldest)
        ended = asyncio.Event()
        self._followers.setdefault(user, []).append(ended)
        return ended

    def _end(self, user: str, ended: asyncio.Event) -> None:
        rest = [event for event in self._followers.get(user, ()) if event is not ended]
        if rest:
            self._followers[user] = rest
        else:
            self._followers.pop(user, None)

    async def _send(
        self, request: web.Request, passes: Test, ended: asyncio.Event, *, halves: bool
    ) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        clock = asyncio.get_running_loop().time
        place, end, spoke = (
            self.place_of(request.headers.get("Last-Event-ID", "")),
            clock() + MAX_SECONDS,
            0.0,
        )
        while (now := clock()) < end and not ended.is_set():
            rows, missed = self.after(place, passes, halves=halves)
            place = self._ring.end
            if rows or missed or not spoke:
                await response.write(self._event(rows, missed))
                spoke = now
            elif now - spoke > SILENCE:
                await response.write(b":\n\n")
                spoke = now
            await asyncio.sleep(PAUSE)
        return response

    def _event(self, rows: Sequence[FlowRecord], missed: int) -> bytes:
        shown = [dict(zip(WRITTEN, values_of(row), strict=True)) for row in rows]
        text = msgspec.json.encode({"rows": shown, "missed": missed})
        return b"id: %s-%d\ndata: %s\n\n" % (self._run.encode(), self._ring.end, text)


def is_denied(record: FlowRecord) -> bool:
    """Whether a rule dropped or rejected it."""
    return (
        record.ingress_network_policy_rule_action in _DENIED
        or record.egress_network_policy_rule_action in _DENIED
    )


def matcher(parameters: Mapping[str, str], namespaces: Sequence[str] | None) -> Test:
    """Whether a record is one that the query `flows` would answer with. Raises Invalid naming the parameter."""
    values = scope_of("live", parameters, namespaces, FILTERS).values
    tests = [make(values) for key, make in _TESTS.items() if key in values]
    if action := parameters.get("action", "").lower():
        tests.append(_action(action))
    return lambda record: all(test(record) for test in tests)


def _visible_test(values: Mapping[str, Any]) -> Test:
    """Both ends are in these Namespaces or outside of the cluster; one at least is in them."""
    of, allowed = attrgetter("source_pod_namespace", "destination_pod_namespace"), {"", *values["seen"]}
    return lambda record: any(namespaces_of_record := of(record)) and allowed.issuperset(namespaces_of_record)


def _namespace(values: Mapping[str, Any]) -> Test:
    of = attrgetter("source_pod_namespace", "destination_pod_namespace")
    return lambda record: values["namespace"] in of(record)


def _named(kind: str, fields: Sequence[tuple[str, str]]) -> Callable[[Mapping[str, Any]], Test]:
    """A Pod or a policy, with its Namespace where that is given; `fields` are those of a Namespace and of a name."""

    def make(values: Mapping[str, Any]) -> Test:
        name, namespace = values[kind], values.get(f"{kind}Namespace")
        return lambda record: any(
            getattr(record, field) == name and namespace in (None, getattr(record, space))
            for space, field in fields
        )

    return make


def _equal(key: str, *fields: str) -> Callable[[Mapping[str, Any]], Test]:
    def make(values: Mapping[str, Any]) -> Test:
        return lambda record: any(getattr(record, field) == values[key] for field in fields)

    return make


def _action(name: str) -> Test:
    actions = {"allow": (RuleAction.ALLOW,), "drop": _DENIED[:1], "reject": _DENIED[1:], "denied": _DENIED}[
        name
    ]
    of = attrgetter(*(f"{way}_network_policy_rule_action" for way in _WAYS))
    return lambda record: any(action in actions for action in of(record))


_TESTS: Final[Mapping[str, Callable[[Mapping[str, Any]], Test]]] = {
    "seen": _visible_test,
    "namespace": _namespace,
    "pod": _named("pod", [(f"{end}_pod_namespace", f"{end}_pod_name") for end in _ENDS]),
    "srcip": _equal("srcip", "source_ip"),
    "dstip": _equal("dstip", "destination_ip"),
    "port": _equal("port", "destination_transport_port", "destination_service_port"),
    "protocol": _equal("protocol", "protocol_identifier"),
    "policy": _named(
        "policy", [(f"{way}_network_policy_namespace", f"{way}_network_policy_name") for way in _WAYS]
    ),
    "egress": _equal("egress", "egress_name"),
}
"""Tests by the parameter of the statement that has the value."""
