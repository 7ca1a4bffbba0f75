"""Files of the engine at its start: its configuration, and one for each tenant.

A tenant is a rule; packets of its connections have its number as VLAN. Every tenant is in the file that the engine starts with:
one that is added by a command costs a quarter of a second.
Source: docs.suricata.io/en/suricata-7.0.10/configuration
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

TAPS = ("antrea-l7-tap0", "antrea-l7-tap1")
"""Internal ports of the switch: packets go to the first and, if they pass, return by the second; those of the server

go the same way. Resets of the engine come by the first.
"""
LAST_TENANT = 4094
"""The largest number of a VLAN (IEEE 802.1Q, table 9-2)."""
DEFAULT_RULES = "default.rules"
SOCKET = "command.sock"
MATCH_LIMIT = 1_000_000
"""Match limit of an expression, beyond which it decides nothing; the longest allowed head of a request does not reach it."""
HEADER = "%YAML 1.1\n---\n"
BODY = {"request-body-limit": "4kb", "response-body-limit": "4kb"}


def engine_file(directory: str, tenants: Iterable[int], *, events: str) -> str:
    """Make the configuration of an engine with its files in `directory` that writes verdicts to the Unix socket `events`.

    Raises Invalid for a number that no VLAN has.
    """
    numbers = sorted(set(tenants))
    for number in numbers:
        if not 1 <= number <= LAST_TENANT:
            raise Invalid("tenant", f"{number} is not a VLAN: it must be 1 to {LAST_TENANT}")
    return _text(
        {
            "default-log-dir": directory,
            "stats": {"enabled": "no"},
            "logging": _logging(directory),
            "outputs": _outputs(events),
            "af-packet": [_capture(0), _capture(1)],
            "host-mode": "sniffer-only",
            "exception-policy": "drop-flow",
            "unix-command": {"enabled": "yes", "filename": f"{directory}/{SOCKET}"},
            "vars": {"address-groups": {"HOME_NET": "any", "EXTERNAL_NET": "any"}},
            "default-rule-path": directory,
            "rule-files": [f"{directory}/{DEFAULT_RULES}"],
            "multi-detect": _tenants(directory, numbers),
            "pcre": {"match-limit": MATCH_LIMIT, "match-limit-recursion": MATCH_LIMIT},
            "app-layer": _protocols(),
            "stream": _stream(),
            "flow": {
                "memcap": "32mb", "memcap-policy": "drop-packet", "hash-size": 8192, "prealloc": 512,
                "managers": 1, "recyclers": 1,
            },
            "defrag": {"memcap": "4mb", "hash-size": 1024, "trackers": 1024, "max-frags": 2048, "prealloc": "yes"},
            "runmode": "workers",
            "max-pending-packets": 256,
            "detect": {"profile": "low"},
        }
    )  # fmt: skip


def tenant_file(directory: str, tenant: int) -> str:
    """Make the configuration of one tenant, which names its rule file."""
    return _text({"default-rule-path": directory, "rule-files": [rule_path(directory, tenant)]})


def tenant_path(directory: str, tenant: int) -> str:
    """Return the path of a tenant's configuration file."""
    return f"{directory}/tenant-{tenant}.yaml"


def rule_path(directory: str, tenant: int) -> str:
    """Return the path of a tenant's rule file."""
    return f"{directory}/tenant-{tenant}.rules"


def _text(values: dict[str, Any]) -> str:
    """Encode as JSON, which is YAML; the engine requires the line at the top."""
    return HEADER + msgspec.json.format(msgspec.json.encode(values)).decode() + "\n"


def _logging(directory: str) -> dict[str, Any]:
    file = {"enabled": "yes", "filename": f"{directory}/suricata.log"}
    return {"default-log-level": "notice", "outputs": [{"console": {"enabled": "no"}}, {"file": file}]}


def _outputs(events: str) -> list[dict[str, Any]]:
    """Configure outputs: verdicts, requests and handshakes; the agent bounds what it writes of them.

    Without a reader they are lost, and no packet is delayed. parity: reconciler.go suricataAntreaConfigData
    """
    settings = {"enabled": "yes", "filetype": "unix_stream", "filename": events}
    verdicts = {"enabled": "yes", "packet": "yes"}
    seen = {"enabled": "yes", "extended": "yes"}
    return [{"eve-log": {**settings, "types": [{"alert": verdicts}, {"http": seen}, {"tls": seen}]}}]


def _capture(number: int) -> dict[str, Any]:
    """Configure inline capture between the taps. Checksums are not verified: those of local senders may be left to their
    device.
    """
    return {
        "interface": TAPS[number], "copy-iface": TAPS[1 - number], "copy-mode": "ips", "threads": 1,
        "cluster-id": 80 + number, "cluster-type": "cluster_flow", "defrag": "no", "use-mmap": "yes",
        "tpacket-v3": "no", "ring-size": 256, "checksum-checks": "no",
    }  # fmt: skip


def _tenants(directory: str, numbers: list[int]) -> dict[str, Any]:
    return {
        "enabled": "yes", "selector": "vlan", "loaders": 1,
        "tenants": [{"id": number, "yaml": tenant_path(directory, number)} for number in numbers],
        "mappings": [{"vlan-id": number, "tenant-id": number} for number in numbers],
    }  # fmt: skip


def _protocols() -> dict[str, Any]:
    http = {"enabled": "yes", "libhtp": {"default-config": {"personality": "IDS", **BODY}}}
    tls = {"enabled": "yes", "detection-ports": {"dp": "443"}}
    return {
        "error-policy": "drop-flow",
        "protocols": {"http": http, "http2": {"enabled": "yes"}, "tls": tls},
    }


def _stream() -> dict[str, Any]:
    """Configure streams without a depth, or a request behind it would not be judged; inline, so that no byte passes before it
    is judged.
    """
    return {
        "memcap": "32mb", "memcap-policy": "drop-flow", "midstream": "true", "midstream-policy": "ignore",
        "prealloc-sessions": 256, "checksum-validation": "no", "async-oneside": "false", "inline": "yes",
        "reassembly": {"memcap": "64mb", "memcap-policy": "drop-flow", "depth": 0, "segment-prealloc": 256},
    }  # fmt: skip
