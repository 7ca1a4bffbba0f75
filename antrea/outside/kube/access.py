"""Where kube-apiserver is and who we are to it: the Pod's ServiceAccount, an override; kubeconfig.py reads the files of users.

Requests go through the HTTP proxy of proxy-url of the kubeconfig, else of HTTPS_PROXY, HTTP_PROXY and NO_PROXY.

Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/, https://pkg.go.dev/golang.org/x/net/http/httpproxy
"""

from __future__ import annotations

import os
import ssl
import tempfile
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from multidict import CIMultiDict

from antrea.config.load import read
from antrea.decoding import decode_text
from antrea.errors import Invalid, Unavailable
from antrea.outside.tls.client_context import client_context

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping

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


SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(msgspec.Struct, frozen=True):
    """One server and one identity. Texts ending in `_pem` hold PEM, not paths."""

    url: str
    """https://host:port, without a slash at the end."""
    ca_pem: str = ""
    """Empty: the system's CAs."""
    token: str = ""
    token_file: str = ""
    """Read for every request, because kubelet renews it; wins over `token`."""
    certificate_pem: str = ""
    key_pem: str = ""
    server_name: str = ""
    """Name that the server's certificate must have; empty: the host of the URL."""
    insecure: bool = False
    impersonate: tuple[tuple[str, str], ...] = ()
    """Headers that ask to be treated as another user, one of them once for each group."""
    proxy_url: str = ""
    """Proxy of the kubeconfig; empty: the environment names the proxy, if there is one."""
    disable_compression: bool = False

    def as_bearer(self, token: str) -> Access:
        """The same server with another identity, of which nothing is known but its token."""
        return msgspec.structs.replace(
            self, token=token, token_file="", certificate_pem="", key_pem="", impersonate=()
        )

    def proxy(self) -> str:
        """The URL of the HTTP proxy to the server; empty: there is none. Raises Invalid."""
        return proxy_for(self.url, self.proxy_url, os.environ)

    def authorization(self) -> MutableMapping[str, str]:
        """The headers with our credential and with whom we act as. Raises Unavailable if the token file cannot be read."""
        token = self.token
        if self.token_file:
            try:
                token = decode_text(Path(self.token_file).read_bytes(), self.token_file, "ascii").strip()
            except (OSError, Invalid) as error:
                raise Unavailable(f"token file {self.token_file}: {error}") from error
        headers = CIMultiDict(self.impersonate)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def tls(self) -> ssl.SSLContext | bool:
        """The TLS settings of a connection; True (unused) for plain http. Raises Invalid for unusable PEM."""
        if self.url.startswith("http://"):
            return True
        try:
            context = client_context(cadata=self.ca_pem or None)
            if self.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate_pem:
                # ssl reads certificate and key from files only
                with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
                    file.write(f"{self.certificate_pem}\n{self.key_pem}\n")
                    file.flush()
                    context.load_cert_chain(file.name)
        except (ssl.SSLError, ValueError) as error:
            raise Invalid("certificate", f"CA, certificate or key cannot be used: {error}") from error
        return context


def api_server_url(override: str) -> str:
    """The URL meant by kubeAPIServerOverride: host, host:port or URL; https and 443 by default.

    Raises Invalid. parity: pkg/util/k8s/client.go ParseKubeAPIServerOverride
    """
    text = override if "://" in override else f"https://{_bracketed(override)}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or 443
    except ValueError as error:
        raise Invalid(
            "kubeAPIServerOverride", f"{override!r} is not a host, host:port or URL: {error}"
        ) from error
    if not host or parts.scheme not in ("https", "http") or " " in text:
        raise Invalid("kubeAPIServerOverride", f"{override!r} is not a host, host:port or URL")
    return f"{parts.scheme}://{_bracketed(host)}:{port}{parts.path.rstrip('/')}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def in_cluster(
    environ: Mapping[str, str], *, override: str = "", directory: Path = SERVICE_ACCOUNT
) -> Access:
    """The ServiceAccount mounted at `directory`. Raises Invalid if this is not a Pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not override and not (host and port):
        raise Invalid(
            "KUBERNETES_SERVICE_HOST",
            "is not set with KUBERNETES_SERVICE_PORT: this is not a Pod; name a kubeconfig",
        )
    token = directory / "token"
    if not token.exists():
        raise Invalid(str(token), "does not exist: the Pod has no ServiceAccount token")
    return Access(
        url=api_server_url(override or f"{_bracketed(host)}:{port}"),
        ca_pem=read(directory / "ca.crt"),
        token_file=str(token),
    )
