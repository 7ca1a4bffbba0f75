"""Where kube-apiserver is and who we are."""

from __future__ import annotations

import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from loopback import answering

from antrea.apis.core import Node
from antrea.errors import Invalid, Unavailable
from antrea.outside.kube.access import Access, api_server_url, in_cluster
from antrea.outside.kube.client import Kube
from antrea.outside.kube.kubeconfig import kubeconfig
from antrea.outside.kube.override import Override
from antrea.outside.tls.server_context import Certificate, self_signed, server_tls

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("override", "url"),
    [
        ("10.0.0.1", "https://10.0.0.1:443"),
        ("api.example.com", "https://api.example.com:443"),
        ("10.0.0.1:6443", "https://10.0.0.1:6443"),
        ("https://10.0.0.1", "https://10.0.0.1:443"),
        ("https://10.0.0.1:6443/", "https://10.0.0.1:6443"),
        ("http://10.0.0.1:8080", "http://10.0.0.1:8080"),
        ("fd00::1", "https://[fd00::1]:443"),
        ("[fd00::1]:6443", "https://[fd00::1]:6443"),
        ("https://example.com/clusters/a/", "https://example.com:443/clusters/a"),
    ],
)
def test_access_an_override_may_be_host_host_and_port_or_url(override: str, url: str) -> None:
    assert api_server_url(override) == url


@pytest.mark.parametrize("override", ["ftp://x", "https://", "host:99999", "a b", "host:port"])
def test_access_any_other_override_is_refused(override: str) -> None:
    with pytest.raises(Invalid, match=r"^kubeAPIServerOverride: "):
        api_server_url(override)


def test_access_in_cluster_is_the_service_account_and_its_token_is_read_each_time(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    (tmp_path / "ca.crt").write_text("CA")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    access = in_cluster(environ, directory=tmp_path)
    assert access == Access("https://[fd00::1]:443", "CA", token_file=str(tmp_path / "token"))
    assert access.authorization() == {"Authorization": "Bearer first"}
    (tmp_path / "token").write_text("second")
    assert access.authorization() == {"Authorization": "Bearer second"}
    (tmp_path / "token").unlink()
    with pytest.raises(Unavailable, match="token file"):
        access.authorization()
    (tmp_path / "token").write_text("third")
    assert in_cluster({}, override="10.0.0.1", directory=tmp_path).url == "https://10.0.0.1:443"


def test_access_outside_a_pod_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="this is not a Pod"):
        in_cluster({}, directory=tmp_path)
    with pytest.raises(Invalid, match="has no ServiceAccount token"):
        in_cluster({}, override="10.0.0.1", directory=tmp_path)


def written(path: Path, *, cluster: dict[str, Any], user: dict[str, Any]) -> Path:
    tree = {
        "current-context": "me",
        "contexts": [{"name": "other"}, {"name": "me", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    path.write_text(yaml.safe_dump(tree))
    return path


def test_access_a_kubeconfig_names_files_beside_it_or_holds_their_content(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("CA")
    path = written(
        tmp_path / "config",
        cluster={"server": "https://10.0.0.1:6443/", "certificate-authority": "ca.pem", "tls-server-name": "kubernetes"},
        user={
            "client-certificate-data": base64.b64encode(b"CERT").decode(),
            "client-key-data": base64.b64encode(b"KEY").decode(),
        },
    )  # fmt: skip
    assert kubeconfig(path) == Access(
        "https://10.0.0.1:6443", "CA", certificate_pem="CERT", key_pem="KEY", server_name="kubernetes"
    )
    assert kubeconfig(path, override=Override(server="10.0.0.2")).url == "https://10.0.0.2:443"
    path = written(
        tmp_path / "config",
        cluster={"server": "https://a", "insecure-skip-tls-verify": True},
        user={"tokenFile": "token"},
    )
    assert kubeconfig(path) == Access("https://a", token_file=str(tmp_path / "token"), insecure=True)


@pytest.mark.parametrize(
    ("cluster", "user", "why"),
    [
        ({}, {}, "server: is missing"),
        ({"server": "10.0.0.1"}, {}, "is not a URL"),
        ({"server": "https://a"}, {"exec": {"command": "x"}}, "exec: is not supported"),
        ({"server": "https://a", "certificate-authority": "nowhere.pem"}, {}, "cannot be read: No such file"),
        ({"server": "https://a", "certificate-authority-data": "%%"}, {}, "is not base64"),
    ],
)
def test_access_an_unusable_kubeconfig_is_one_clear_line(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], why: str
) -> None:
    with pytest.raises(Invalid, match=why):
        kubeconfig(written(tmp_path / "config", cluster=cluster, user=user))


@pytest.mark.parametrize(
    ("text", "why"), [("a: [", "not YAML"), ("[]", "a mapping"), ("{}", "contexts: has no context")]
)
def test_access_a_file_that_is_no_kubeconfig_is_one_clear_line(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(Invalid, match=why):
        kubeconfig(tmp_path / "config")
    with pytest.raises(Invalid, match="cannot be read"):
        kubeconfig(tmp_path / "nothing")


def test_access_unusable_pem_is_one_clear_line() -> None:
    with pytest.raises(Invalid, match=r"^certificate: "):
        Access("https://a", ca_pem="nonsense").tls()
    with pytest.raises(Invalid, match=r"^certificate: "):
        Access("https://a", certificate_pem="nonsense").tls()


async def test_access_certificates_and_names_hold_on_a_real_connection() -> None:
    server, client = self_signed(("kube-test",), ()), client_certificate()
    context = server_tls(server)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=client.certificate_pem)
    async with answering(_node, context) as url:
        found = await _reached(url, server, client)
    assert found == [True, True, False, False, False]


async def _reached(url: str, server: Certificate, client: Certificate) -> list[bool]:
    """Whether who knows both certificates reaches it, who trusts anybody, and three who have it wrong."""
    known = Access(
        url,
        server.certificate_pem,
        certificate_pem=client.certificate_pem,
        key_pem=client.key_pem,
        server_name="kube-test",
    )
    found = []
    for access in (
        known,
        msgspec.structs.replace(known, ca_pem="", insecure=True),
        msgspec.structs.replace(known, server_name="another"),
        msgspec.structs.replace(known, ca_pem=client.certificate_pem),
        msgspec.structs.replace(known, certificate_pem="", key_pem=""),
    ):
        async with Kube(access) as kube:
            try:
                found.append(await kube.get("/api/v1/nodes/a", Node) is not None)
            except Unavailable:
                found.append(False)
    return found


def client_certificate() -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "me")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(datetime.now(UTC) + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key_pem = key.private_bytes(pem, pkcs8, serialization.NoEncryption())
    return Certificate(made.public_bytes(pem).decode(), key_pem.decode())


async def _node(_: web.Request) -> web.Response:
    return web.json_response({"metadata": {"name": "a"}})
