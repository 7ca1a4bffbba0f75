"""The host outside of the cluster that Pods have to reach."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from antrea.antctl.failure import Failure
from antrea.antctl.pod_exec import Overdue

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_TARGET: Final = "api.github.com"
DEFAULT_PORT: Final = 80
_TARGET = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")


class Target(NamedTuple):
    """A host, as a name or an address, and a TCP port."""

    host: str
    port: int


DEFAULT: Final = Target(DEFAULT_TARGET, DEFAULT_PORT)
"""parity: pkg/antctl/raw/check/installation/test_podtointernet.go"""


def target_of(text: str) -> Target:
    """Return the target of HOST, HOST:PORT or [IPv6]:PORT; port 80 by default. Raises Failure."""
    match = _TARGET.fullmatch(text)
    port = int(match["port"] or DEFAULT_PORT) if match else 0
    if not match or not 0 < port < 65536:
        raise Failure(f"--internet-target {text!r} is not HOST, HOST:PORT or [IPv6]:PORT")
    return Target(match["ipv6"] or match["host"], port)


def why_unreached(attempt: Callable[[], str]) -> str:
    """Return the reason that `attempt` gives; a name that takes too long to resolve is one. Raises Failure."""
    try:
        return attempt()
    except Overdue as error:
        return error.format_message()
