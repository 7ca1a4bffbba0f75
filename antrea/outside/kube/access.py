"""Where kube-apiserver is and who we are to it: the Pod's ServiceAccount, a kubeconfig file, an override."""

from __future__ import annotations

import base64
import binascii
import ssl
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import yaml

from antrea.config.load import read
from antrea.errors import Invalid, Unavailable
from antrea.outside.kube.exec_credential import Credential, credential
from antrea.outside.tls.client_context import client_context

if TYPE_CHECKING:
    from collections.abc import Mapping

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

    def authorization(self) -> dict[str, str]:
        """The header with our credential. Raises Unavailable if the token file cannot be read."""
        token = self.token
        if self.token_file:
            try:
                token = Path(self.token_file).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError) as why:
                raise Unavailable(f"token file {self.token_file}: {why}") from why
        return {"Authorization": f"Bearer {token}"} if token else {}

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
        except (ssl.SSLError, ValueError) as why:
            raise Invalid("certificate", f"CA, certificate or key cannot be used: {why}") from why
        return context


def api_server_url(override: str) -> str:
    """The URL meant by kubeAPIServerOverride: host, host:port or URL; https and 443 by default.

    Raises Invalid. parity: pkg/util/k8s/client.go ParseKubeAPIServerOverride
    """
    text = override if "://" in override else f"https://{_bracketed(override)}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port or 443
    except ValueError as why:
        raise Invalid("kubeAPIServerOverride", f"{override!r} is no host, host:port or URL: {why}") from why
    if not host or parts.scheme not in ("https", "http") or " " in text:
        raise Invalid("kubeAPIServerOverride", f"{override!r} is no host, host:port or URL")
    return f"{parts.scheme}://{_bracketed(host)}:{port}{parts.path.rstrip('/')}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


def in_cluster(
    environ: Mapping[str, str], *, override: str = "", directory: Path = SERVICE_ACCOUNT
) -> Access:
    """The ServiceAccount mounted at `directory`. Raises Invalid if this is no Pod."""
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not override and not (host and port):
        raise Invalid(
            "KUBERNETES_SERVICE_HOST",
            "is not set with KUBERNETES_SERVICE_PORT: this is no Pod; name a kubeconfig",
        )
    token = directory / "token"
    if not token.exists():
        raise Invalid(str(token), "does not exist: the Pod has no ServiceAccount token")
    return Access(
        url=api_server_url(override or f"{_bracketed(host)}:{port}"),
        ca_pem=read(directory / "ca.crt"),
        token_file=str(token),
    )


def kubeconfig(path: Path | str, *, override: str = "", plugins: bool = False) -> Access:
    """The current context of a kubeconfig file. Raises Invalid.

    With `plugins`, an exec plugin is run, once: what it gives does not last, which is right for a command that ends.
    Source: https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
    """
    path = Path(path)
    try:
        tree = yaml.safe_load(read(path))
    except yaml.YAMLError as why:
        raise Invalid(str(path), f"not YAML: {' '.join(str(why).split())}") from why
    if not isinstance(tree, dict):
        raise Invalid(str(path), "is no kubeconfig: a mapping is expected")
    context = _named(tree, "contexts", "context", tree.get("current-context"), path)
    cluster = _named(tree, "clusters", "cluster", context.get("cluster"), path)
    user = _named(tree, "users", "user", context.get("user"), path) if context.get("user") else {}
    for unsupported in ("exec", "auth-provider", "username"):
        if user.get(unsupported) and not (plugins and unsupported == "exec"):
            raise Invalid(
                f"{path}: users[].user.{unsupported}", "is not supported; use a token or a client certificate"
            )
    server = override or cluster.get("server")
    if not server:
        raise Invalid(f"{path}: clusters[].cluster.server", "is missing")
    token_file = user.get("tokenFile", "")
    given = Credential()
    if user.get("exec"):
        given = credential(user["exec"], cluster, path, f"{path}: users[].user.exec")
    return Access(
        url=api_server_url(str(server)) if override else _with_port(str(server), path),
        ca_pem=_pem(cluster, "certificate-authority", path),
        token=user.get("token", "") or given.token,
        token_file=str(path.parent / token_file) if token_file else "",
        certificate_pem=_pem(user, "client-certificate", path) or given.client_certificate_data,
        key_pem=_pem(user, "client-key", path) or given.client_key_data,
        server_name=cluster.get("tls-server-name", ""),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
    )


def _with_port(server: str, path: Path) -> str:
    parts = urlsplit(server)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise Invalid(f"{path}: clusters[].cluster.server", f"{server!r} is no URL")
    return server.rstrip("/")


def _named(tree: dict[str, Any], plural: str, singular: str, name: Any, path: Path) -> dict[str, Any]:
    for row in tree.get(plural) or []:
        if isinstance(row, dict) and row.get("name") == name and isinstance(row.get(singular), dict):
            found: dict[str, Any] = row[singular]
            return found
    raise Invalid(f"{path}: {plural}", f"has no {singular} named {name!r}")


def _pem(section: dict[str, Any], key: str, path: Path) -> str:
    """The PEM in KEY-data (base64), or in the file KEY, relative to the kubeconfig; empty if there is neither."""
    data = section.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, ValueError, TypeError) as why:
            raise Invalid(f"{path}: {key}-data", "is not base64 of PEM") from why
    return read(path.parent / section[key]) if section.get(key) else ""
