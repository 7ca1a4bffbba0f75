"""Names of rules that the user left unnamed: direction, action and a digest of the rule.

The digest is of the rule as Go encodes it, so that a policy gets the names here that it had upstream.
parity: pkg/controller/networkpolicy/mutate.go generateRuleNames, pkg/apis/crd/v1beta1/types.go Rule
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

_SUFFIX = 7
# the order of the fields of every Go struct inside a rule, merged into one: no two of them disagree
_ORDER = (
    "action", "ports", "protocols", "l7Protocols", "from", "to", "toServices", "name", "namespace", "enableLogging",
    "logLabel", "appliedTo", "protocol", "port", "endPort", "sourcePort", "sourceEndPort", "icmp", "igmp", "icmpType",
    "icmpCode", "igmpType", "groupAddress", "http", "tls", "host", "method", "path", "sni", "ipBlock", "podSelector",
    "namespaceSelector", "namespaces", "externalEntitySelector", "group", "fqdn", "serviceAccount", "service",
    "nodeSelector", "scope", "cidr", "except", "match", "sameLabels", "matchLabels", "matchExpressions", "key",
    "operator", "values",
)  # fmt: skip
_ALWAYS = {"cidr", "key", "operator"}
_ESCAPED = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def rule_name(direction: str, rule: Mapping[str, Any]) -> str:
    """Make a name such as ingress-drop-ed700e3, for a rule as the API server sends it."""
    text = msgspec.json.encode(_as_go({"enableLogging": False, **rule})).decode()
    for character, escape in _ESCAPED.items():
        text = text.replace(character, escape)
    digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
    return f"{direction}-{str(rule.get('action', '')).lower()}-{digest[:_SUFFIX]}"


def _as_go(value: Any) -> Any:
    """Return `value` with the fields in Go's order, without those that Go leaves out."""
    if isinstance(value, dict):
        return {
            key: dict(sorted(value[key].items())) if key == "matchLabels" else _as_go(value[key])
            for key in _ORDER
            if key in value and (key in _ALWAYS or not _empty(key, value[key]))
        }
    if isinstance(value, list):
        return [_as_go(item) for item in value]
    return value


def _empty(key: str, value: Any) -> bool:
    return value is None or value == "" or value == [] or (key == "matchLabels" and not value)
