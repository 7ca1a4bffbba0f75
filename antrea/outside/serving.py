"""Parts of a program's own HTTPS API: certificate in memory, loopback token, health checks, metrics.

The server itself, who may ask it and what, is antrea.outside.aggregated.server.
"""

from __future__ import annotations

import os
import secrets
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from antrea.errors import Invalid, Unavailable
from antrea.outside import klog

log = klog.logger(__name__)

TOKEN_FILE = Path("/var/run/antrea/apiserver/loopback-client-token")
_CERTIFICATE_ENDS = "-----END CERTIFICATE-----\n"
HEALTH = ("healthz", "livez", "readyz")
Check = Callable[[], str]
"""Says why it fails; an empty text is success."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Go's names of what TLS 1.2 may use, and OpenSSL's; TLS 1.3 chooses by itself in both
_CIPHERS = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
_VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}


class Certificate(msgspec.Struct, frozen=True):
    """PEM of a certificate that signs itself, and of its key."""

    certificate_pem: str
    key_pem: str


def self_signed(names: tuple[str, ...], addresses: tuple[str, ...], days: int = 365) -> Certificate:
    """A serving certificate for these names and addresses; the first name is its subject.

    Raises Unavailable if none can be made. A process of its own makes it: see antrea.outside.self_signed.
    """
    words = (",".join(names), ",".join(addresses), str(days))
    command = [sys.executable, "-m", "antrea.outside.self_signed", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    certificate, mark, rest = done.stdout.partition(_CERTIFICATE_ENDS)
    if done.returncode or not mark:
        raise Unavailable(f"a serving certificate: {done.stderr.strip()[-200:]}")
    return Certificate(certificate + mark, rest)


def server_tls(
    certificate: Certificate | None, *, min_version: str = "", cipher_suites: str = ""
) -> ssl.SSLContext:
    """TLS of a server, by the keys tlsMinVersion and tlsCipherSuites; None: its certificate comes later. Raises Invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[min_version]
    asked = [name.strip() for name in cipher_suites.split(",") if name.strip()]
    for name in asked:
        if name not in _CIPHERS:
            raise Invalid("tlsCipherSuites", f"{name!r} is no cipher suite that TLS 1.2 or 1.3 can use here")
    openssl = [_CIPHERS[name] for name in asked if _CIPHERS[name]]
    if openssl:
        context.set_ciphers(":".join(openssl))
    if certificate is not None:
        load_pair(context, certificate)
    return context


def load_pair(context: ssl.SSLContext, pair: Certificate) -> None:
    """Let new connections of `context` present this certificate. Raises Invalid if it or its key cannot be used."""
    # ssl reads certificate and key from files only
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{pair.certificate_pem}\n{pair.key_pem}\n")
        file.flush()
        try:
            # an empty password, so that nobody is asked for one on the terminal
            context.load_cert_chain(file.name, password="")
        except (ssl.SSLError, ValueError) as why:
            raise Invalid("certificate", f"it or its key cannot be used: {why}") from why


def write_token(path: Path = TOKEN_FILE) -> str:
    """A fresh token in `path`, readable by root only; the one before is void. Raises Unavailable."""
    token = secrets.token_urlsafe(32)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh.unlink(missing_ok=True)
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
        fresh.replace(path)
    except OSError as why:
        raise Unavailable(f"token file {path}: {why.strerror}") from why
    return token


def listen(port: int) -> socket.socket:
    """A socket on all addresses of both families, or of IPv4 where there is no IPv6. Raises Unavailable."""
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("0.0.0.0", port))  # noqa: S104 (kubelet's probes and antctl come from outside)
    except OSError as why:
        raise Unavailable(f"port {port}: {why.strerror}") from why


def health(checks: Mapping[str, Check]) -> Handler:
    """A handler that asks `checks` by name; the last part of its path is the name of what is asked."""

    async def handler(request: web.Request) -> web.Response:
        name = request.path.strip("/")
        failed = {check: why for check, test in checks.items() if (why := test())}
        if not failed and "verbose" not in request.query:
            return web.Response(text="ok")
        lines = [
            "[+]ping ok",
            *(
                f"[-]{check} failed: {failed[check]}" if check in failed else f"[+]{check} ok"
                for check in checks
            ),
            f"{name} check {'failed' if failed else 'passed'}",
        ]
        return web.Response(text="\n".join(lines) + "\n", status=500 if failed else 200)

    return handler


def json_answer(body: Any) -> web.Response:
    """`body` as JSON, a Struct or a list of them."""
    return web.Response(body=msgspec.json.encode(body) + b"\n", content_type="application/json")


def metrics_of(own: str) -> web.Response:
    """Metrics in Prometheus' format: `own`, and those that every process has."""
    return web.Response(text=own + measured(), content_type="text/plain")


def measured() -> str:
    """The metrics that every process has, of this one."""
    from prometheus_client import generate_latest  # noqa: PLC0415 (a MiB until somebody asks)

    return generate_latest().decode()


async def loglevel(request: web.Request) -> web.Response:
    """Show the verbosity, or set it to the query's `level`. Raises Invalid."""
    level = request.query.get("level", "")
    if not level:
        return json_answer(klog.verbosity())
    if not level.isdecimal() or int(level) > 10:
        raise Invalid("level", "log level must be a number from 0 to 10")
    klog.set_verbosity(int(level))
    return web.Response()
