"""Configuration of the engine: it reads one port, has no signatures, and writes requests to a socket.

Source: docs.suricata.io/en/suricata-7.0.10/configuration
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

TLS_FIELDS = {"custom": ["sni", "version"], "session-resumption": "yes"}
HEADER = "%YAML 1.1\n---\n"
"""First lines that the engine requires; JSON is YAML."""


def engine_file(port: str, folder: str, events: str) -> str:
    """The configuration of an engine that reads `port`, keeps files in `folder` and sends events to the socket `events`."""
    values: Mapping[str, Any] = {
        "default-log-dir": folder,
        "stats": {"enabled": "no"},
        "logging": {"default-log-level": "notice", "outputs": [{"console": {"enabled": "yes"}}]},
        "outputs": [{"eve-log": _events(events)}],
        "af-packet": [_capture(port)],
        "host-mode": "sniffer-only",
        "unix-command": {"enabled": "no"},
        "rule-files": [],
        "app-layer": {"protocols": _protocols()},
        "stream": _stream(),
        "flow": {"memcap": "32mb", "hash-size": 8192, "prealloc": 512, "managers": 1, "recyclers": 1},
        "defrag": {
            "memcap": "4mb",
            "hash-size": 1024,
            "trackers": 1024,
            "max-frags": 2048,
            "prealloc": "yes",
        },
        "ippair": {"memcap": "1mb", "hash-size": 256, "prealloc": 16},
        "host": {"memcap": "1mb", "hash-size": 256, "prealloc": 16},
        "vlan": {"use-for-tracking": "yes"},
        "runmode": "workers",
        "max-pending-packets": 256,
        "detect": {"profile": "low"},
    }
    return HEADER + msgspec.json.format(msgspec.json.encode(values)).decode() + "\n"


def _events(path: str) -> dict[str, Any]:
    return {
        "enabled": "yes",
        "filetype": "unix_stream",
        "filename": path,
        "types": [
            {"http": {"extended": "yes"}},
            "http2",
            {"tls": TLS_FIELDS},
            {"dns": {"version": 2, "formats": ["detailed"]}},
        ],
    }


def _capture(port: str) -> dict[str, Any]:
    """Configure capture without verification of checksums, which may be left to a device. A frame may have 64 KiB until it is
    cut.
    """
    return {
        "interface": port, "threads": 1, "cluster-id": 90, "cluster-type": "cluster_flow", "defrag": "no", "use-mmap": "yes",
        "tpacket-v3": "yes", "ring-size": 2048, "block-size": 131072, "checksum-checks": "no",
    }  # fmt: skip


def _protocols() -> dict[str, Any]:
    """Configure HTTP and TLS, which are detected by their first bytes, at any port."""
    body = {"request-body-limit": "4kb", "response-body-limit": "4kb"}
    dns = {"enabled": "yes", "detection-ports": {"dp": "53"}}
    return {
        "http": {"enabled": "yes", "libhtp": {"default-config": {"personality": "IDS", **body}}},
        "http2": {"enabled": "yes"},
        "tls": {"enabled": "yes", "detection-ports": {"dp": "443"}},
        "dns": {"udp": dns, "tcp": dns},
    }


def _stream() -> dict[str, Any]:
    """Configure streams with `midstream`: existing connections are read from here on."""
    return {
        "memcap": "16mb", "prealloc-sessions": 256, "checksum-validation": "no", "midstream": "true", "async-oneside": "false",
        "reassembly": {"memcap": "32mb", "depth": "1mb", "segment-prealloc": 256},
    }  # fmt: skip
