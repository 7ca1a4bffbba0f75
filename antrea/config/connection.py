"""How a program reaches an API server: the part that both configuration files have."""

from __future__ import annotations

from typing import Literal

import msgspec

from antrea.config.shape import Port

TlsVersion = Literal["", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13"]


class ClientConnection(msgspec.Struct, frozen=True, rename="camel"):
    """k8s.io/component-base ClientConnectionConfiguration."""

    kubeconfig: str = ""
    """Path of a kubeconfig file; empty: the Pod's ServiceAccount."""
    accept_content_types: str = ""
    """Accepted for compatibility and not used: we ask for JSON."""
    content_type: str = ""
    """Accepted for compatibility and not used: we send JSON."""
    qps: float = 0.0
    """Accepted for compatibility and not used: requests are few by design."""
    burst: int = 0
    """Accepted for compatibility and not used: requests are few by design."""


class WireGuardPort(msgspec.Struct, frozen=True, rename="camel"):
    """The port of the WireGuard device between Nodes."""

    port: Port = 51820
    """UDP port that the WireGuard device listens on."""
