"""The conditions of a query: each value of the asker is a parameter of the statement, never a part of its text."""

from __future__ import annotations

import ipaddress
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from antrea.config.shape import seconds
from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from antrea.outside.clickhouse.store import Value

MAX_SECONDS: Final = 31 * 24 * 3600
"""Seconds that a query may go back."""
_TEXT: Final = 253
"""Characters of a name."""
_PROTOCOLS: Final = {"icmp": 1, "tcp": 6, "udp": 17, "icmpv6": 58, "sctp": 132}
_ACTIONS: Final = {"allow": [1], "drop": [2], "reject": [3], "denied": [2, 3]}


class Scope:
    """The conditions, all of which hold, and the values of their parameters."""

    def __init__(self) -> None:
        self.conditions: list[str] = []
        self.values: dict[str, Value] = {}

    @property
    def text(self) -> str:
        """The whole, for WHERE."""
        return " AND ".join(self.conditions)

    def add(self, condition: str, **values: Value) -> None:
        """One more."""
        self.conditions.append(condition)
        self.values |= values


def scope_of(
    name: str, parameters: Mapping[str, str], namespaces: Sequence[str] | None, known: Sequence[str]
) -> Scope:
    """Parse the parameters of the query `name`, which has the parameters `known`; raises Invalid naming the parameter."""
    for key in parameters:
        if key not in known:
            raise Invalid(key, f"is not a parameter of {name}, which has {', '.join(known)}")
    scope = Scope()
    _within(scope, parameters)
    _seen_by(scope, namespaces)
    for key, add in _FILTERS.items():
        if text := parameters.get(key, ""):
            add(scope, key, text)
    if (
        (pod := parameters.get("pod", ""))
        and "/" not in pod
        and (namespace := parameters.get("namespace", ""))
    ):
        _pod(scope, "pod", f"{namespace}/{pod}")
    return scope


def whole(parameters: Mapping[str, str], key: str, default: int, most: int) -> int:
    """A number from 1 to `most`. Raises Invalid."""
    text = parameters.get(key, "") or str(default)
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise Invalid(key, f"{text[:_TEXT]!r} is not a number from 1 to {most}")
    return int(text)


def one_of(parameters: Mapping[str, str], key: str, choices: Sequence[str]) -> str:
    """The first one unless it is given. Raises Invalid."""
    text = parameters.get(key, "") or choices[0]
    if text not in choices:
        raise Invalid(key, f"{text[:_TEXT]!r} is not one of {', '.join(choices)}")
    return text


def duration(parameters: Mapping[str, str], key: str, default: str) -> int:
    """Seconds, from 1 to MAX_SECONDS. Raises Invalid."""
    text = parameters.get(key, "") or default
    try:
        whole_seconds = int(seconds(text[:_TEXT]))
    except (ValueError, OverflowError) as error:
        raise Invalid(key, f"{text[:_TEXT]!r} is not a duration such as 15m or 1h") from error
    if not 1 <= whole_seconds <= MAX_SECONDS:
        raise Invalid(key, f"{text[:_TEXT]!r} is not between 1s and {MAX_SECONDS // 3600}h")
    return whole_seconds


def span_of(parameters: Mapping[str, str]) -> int:
    """Seconds from `since` on, without regard to `until`. Raises Invalid."""
    text = parameters.get("since", "") or "1h"
    if "T" in text:
        return min(max(int(time.time()) - _moment("since", text), 1), MAX_SECONDS)
    return duration(parameters, "since", "1h")


def _within(scope: Scope, parameters: Mapping[str, str]) -> None:
    for key, sign in (("since", ">="), ("until", "<")):
        text = parameters.get(key, "") or ("1h" if key == "since" else "")
        if "T" in text:
            scope.add(f"timeInserted {sign} toDateTime({{{key}:UInt32}})", **{key: _moment(key, text)})
            scope.add(f"timeInserted >= now() - {MAX_SECONDS}")
        elif text:
            scope.add(
                f"timeInserted {sign} now() - {{{key}:UInt32}}", **{key: duration(parameters, key, text)}
            )


def _moment(key: str, text: str) -> int:
    try:
        parsed = datetime.fromisoformat(text[:_TEXT])
        parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
        moment = int(parsed.timestamp())
    except (ValueError, OverflowError) as error:
        raise Invalid(key, f"{text[:_TEXT]!r} is not a time such as 2027-01-31T12:00:00Z") from error
    if not 0 <= moment < 1 << 32:
        raise Invalid(key, f"{text[:_TEXT]!r} is not between the years 1970 and 2106")
    return moment


def _seen_by(scope: Scope, namespaces: Sequence[str] | None) -> None:
    """Both ends are in them, or outside of the cluster; one at least is in them."""
    if namespaces is None:
        return
    for end in ("source", "destination"):
        scope.add(f"({end}PodNamespace = '' OR has({{seen:Array(String)}}, {end}PodNamespace))")
    scope.add("(sourcePodNamespace != '' OR destinationPodNamespace != '')", seen=list(namespaces))


def _name(scope: Scope, key: str, text: str, condition: str) -> None:
    if len(text) > _TEXT or not text.isprintable():
        raise Invalid(key, f"{text[:_TEXT]!r} is not a name of at most {_TEXT} printable characters")
    scope.add(condition, **{key: text})


def _namespace(scope: Scope, key: str, text: str) -> None:
    _name(scope, key, text, "{namespace:String} IN (sourcePodNamespace, destinationPodNamespace)")


def _pod(scope: Scope, key: str, text: str) -> None:
    """A name, or namespace/name, which is that of one end."""
    namespace, _, name = text.rpartition("/")
    ends = "{pod:String} IN (sourcePodName, destinationPodName)"
    if namespace:
        ends = (
            "((sourcePodNamespace, sourcePodName) = ({podNamespace:String}, {pod:String}) OR "
            "(destinationPodNamespace, destinationPodName) = ({podNamespace:String}, {pod:String}))"
        )
        _name(scope, "podNamespace", namespace, "1")
    _name(scope, key, name, ends)


def _address(scope: Scope, key: str, text: str) -> None:
    try:
        address = str(ipaddress.ip_address(text[:_TEXT]))
    except ValueError as error:
        raise Invalid(key, f"{text[:_TEXT]!r} is not an IP address") from error
    column = "sourceIP" if key == "srcip" else "destinationIP"
    scope.add(f"{column} = {{{key}:String}}", **{key: address})


def _port(scope: Scope, key: str, text: str) -> None:
    port = whole({key: text}, key, 0, 65535)
    scope.add("{port:UInt16} IN (destinationTransportPort, destinationServicePort)", port=port)


def _protocol(scope: Scope, key: str, text: str) -> None:
    number = _PROTOCOLS.get(text.lower())
    if number is None and not (text.isascii() and text.isdecimal() and len(text) < 4 and int(text) < 256):
        raise Invalid(
            key, f"{text[:_TEXT]!r} is neither one of {', '.join(_PROTOCOLS)} nor a number up to 255"
        )
    scope.add("protocolIdentifier = {protocol:UInt8}", protocol=int(text) if number is None else number)


def _action(scope: Scope, key: str, text: str) -> None:
    actions = _ACTIONS.get(text.lower())
    if actions is None:
        raise Invalid(key, f"{text[:_TEXT]!r} is not one of {', '.join(_ACTIONS)}")
    either = f"({', '.join(map(str, actions))})"
    scope.add(f"(ingressNetworkPolicyRuleAction IN {either} OR egressNetworkPolicyRuleAction IN {either})")


def _policy(scope: Scope, key: str, text: str) -> None:
    """A name, or namespace/name."""
    namespace, slash, name = text.rpartition("/")
    ways = ("ingress", "egress")
    if slash:
        each = (
            f"({way}NetworkPolicyNamespace, {way}NetworkPolicyName) = ({{policyNamespace:String}}, {{policy:String}})"
            for way in ways
        )
        _name(scope, "policyNamespace", namespace, "1")
    else:
        each = (f"{way}NetworkPolicyName = {{policy:String}}" for way in ways)
    _name(scope, key, name, f"({' OR '.join(each)})")


def _egress(scope: Scope, key: str, text: str) -> None:
    _name(scope, key, text, "egressName = {egress:String}")


_FILTERS: Final[Mapping[str, Callable[[Scope, str, str], None]]] = {
    "namespace": _namespace,
    "pod": _pod,
    "srcip": _address,
    "dstip": _address,
    "port": _port,
    "protocol": _protocol,
    "action": _action,
    "policy": _policy,
    "egress": _egress,
}
