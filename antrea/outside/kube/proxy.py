"""Which HTTP proxy a request goes through: proxy-url of the kubeconfig, else HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/, https://pkg.go.dev/golang.org/x/net/http/httpproxy
"""

from __future__ import annotations

from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from antrea.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PORTS = {"https": 443, "http": 80}


def proxy_for(url: str, configured: str, environ: Mapping[str, str]) -> str:
    """The URL of the proxy for requests to `url`; empty: they go directly. Raises Invalid for a proxy that is not supported.

    A `configured` proxy is used for every host, as by kubectl; NO_PROXY is about those of the environment.
    """
    if configured:
        return _supported(configured, "proxy-url")
    variable = f"{urlsplit(url).scheme}_proxy"
    for name in (variable.upper(), variable):
        if proxy := environ.get(name, ""):
            excluded = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
            return "" if _is_direct(url, excluded) else _supported(proxy, name)
    return ""


def _supported(proxy: str, source: str) -> str:
    """Raises Invalid."""
    text = proxy if "://" in proxy or source == "proxy-url" else f"http://{proxy}"
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Invalid(source, f"is not a URL: {error}") from error
    if parts.scheme != "http" or not host:
        raise Invalid(
            source, f"is not a URL of an HTTP proxy (http://host:port); {parts.scheme!r} is not supported"
        )
    return text.rstrip("/")


def _is_direct(url: str, excluded: str) -> bool:
    """Whether no proxy of the environment is used: for this machine, and what NO_PROXY lists."""
    parts = urlsplit(url)
    host, port = (parts.hostname or "").rstrip("."), parts.port or DEFAULT_PORTS[parts.scheme]
    if host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_loopback:
        return True
    rows = (row.strip().lower() for row in excluded.split(","))
    return any(_matches(row, host, port) for row in rows if row)


def _matches(row: str, host: str, port: int) -> bool:
    """Whether a row of NO_PROXY is about the host: `*`, a CIDR, an address or a domain, each but the first two with a port or without."""
    if row == "*":
        return True
    if "/" in row:
        try:
            return ip_address(host) in ip_network(row, strict=False)
        except ValueError:
            return False
    name, wanted = _with_port(row)
    if wanted and wanted != str(port):
        return False
    try:
        return ip_address(name) == ip_address(host)
    except ValueError:
        pass
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _with_port(row: str) -> tuple[str, str]:
    """The host of a row, without brackets, and its port; empty: any."""
    if row.startswith("["):
        name, _, rest = row[1:].partition("]")
        return name, rest.removeprefix(":")
    if row.count(":") == 1:
        name, _, port = row.partition(":")
        return name, port
    return row, ""
