"""Uploads to real servers on loopback: SFTP of asyncssh, HTTPS of aiohttp; what proves a server, and what it is told."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from aiohttp import web
from certificates import SERVER, made
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from loopback import answering
from sftp_server import PASSWORD, USER, new_key, sftp_server

from antrea.errors import Invalid
from antrea.outside.upload.https import encoded, signed
from antrea.outside.upload.plan import Credentials, UploadOrder, target
from antrea.outside.upload.uploader import UploadFailed, uploaded

if TYPE_CHECKING:
    from pathlib import Path

DATA = bytes(range(256)) * 4096
GOOD = Credentials(USER, PASSWORD)


def order(url: str, source: Path, **more: Any) -> UploadOrder:
    fields: dict[str, Any] = {
        "credentials": GOOD,
        "tries": 2,
        "pause_seconds": 0.01,
        "any_host_key": "host_key" not in more,
        **more,
    }
    return UploadOrder(url, "x.tar.gz", str(source), **fields)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source"
    path.write_bytes(DATA)
    return path


async def refusal(order: UploadOrder) -> str:
    """Why it failed, beside upstream's words."""
    with pytest.raises(UploadFailed, match=f"^failed to upload file after {order.tries} attempts$") as no:
        await uploaded(order)
    return no.value.why


@pytest.mark.parametrize("algorithm", ["ssh-ed25519", "ssh-rsa", "ecdsa-sha2-nistp256"])
async def test_a_file_goes_to_the_sftp_server_that_has_the_key(
    tmp_path: Path, source: Path, algorithm: str
) -> None:
    async with sftp_server(tmp_path / "server", *{"ssh-ed25519": 0, algorithm: 0}) as server:
        await uploaded(order(server.url(), source, host_key=server.keys[-1]))
        assert (server.folder / "upload/x.tar.gz").read_bytes() == DATA
        await uploaded(order(server.url().removeprefix("sftp://"), source, host_key=b"", any_host_key=True))


async def test_an_sftp_server_that_is_another_one_is_not_told_the_password(
    tmp_path: Path, source: Path
) -> None:
    async with sftp_server(tmp_path / "server") as server:
        why = await refusal(order(server.url(), source, host_key=new_key().public_data))
        assert "the server has another host key than fileServer.hostPublicKey" in why
        assert server.asked == []
        assert list((server.folder / "upload").iterdir()) == []


async def test_what_an_sftp_server_refuses_is_the_reason(tmp_path: Path, source: Path) -> None:
    async with sftp_server(tmp_path / "server") as server:
        why = await refusal(order(server.url(), source, credentials=Credentials(USER, "wrong")))
        assert "the server refuses user 'uploader'" in why
        assert server.asked == [USER] * 2
        assert "/nowhere/x.tar.gz: No such file" in await refusal(order(server.url("nowhere"), source))
        closed = server.url()
    assert "Connect call failed" in await refusal(order(closed, source))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"host_key": b""}, "fileServer.hostPublicKey: it is empty, so any server at the address could take"),
        ({"host_key": b"abc"}, "fileServer.hostPublicKey: invalid host public key"),
        (
            {"credentials": Credentials(api_key="k")},
            "authentication.authType: an SFTP server takes BasicAuth",
        ),
    ],
)
async def test_what_no_other_try_would_change_is_said_at_once(
    source: Path, wrong: dict[str, Any], words: str
) -> None:
    with pytest.raises(UploadFailed, match=f"^{words}"):
        await uploaded(order("sftp://127.0.0.1:9", source, pause_seconds=600, **wrong))


async def test_a_second_try_sends_the_whole_file(tmp_path: Path, source: Path) -> None:
    """The server comes up after the first one."""
    async with sftp_server(tmp_path / "first") as first:
        port, url = first.port, first.url()
    work = asyncio.create_task(uploaded(order(url, source, tries=200, pause_seconds=0.05)))
    await asyncio.sleep(0)
    async with sftp_server(tmp_path / "second", port=port) as server:
        await work
        assert (server.folder / "upload/x.tar.gz").read_bytes() == DATA


class Https:
    """Keeps what is PUT."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str, bytes]] = []
        self.status = 201

    async def answer(self, request: web.Request) -> web.Response:
        sent = request.headers.get("Authorization") or request.headers["X-API-Key"]
        self.found.append((request.path, sent, await request.read()))
        return web.Response(status=self.status)


@pytest.mark.parametrize(
    ("credentials", "sent"),
    [
        (Credentials("a", "b"), f"Basic {base64.b64encode(b'a:b').decode()}"),
        (Credentials(bearer_token="t1\n"), "Bearer t1"),
        (Credentials(api_key="k1"), "k1"),
    ],
)
async def test_a_file_goes_to_the_https_server_that_has_the_key(
    tmp_path: Path, source: Path, credentials: Credentials, sent: str
) -> None:
    server, (tls, key) = Https(), served(tmp_path)
    async with answering(server.answer, tls) as url:
        await uploaded(order(f"{url}/bundles", source, credentials=credentials, host_key=key))
        assert server.found == [("/bundles/x.tar.gz", sent, DATA)]


async def test_an_https_server_without_proof_is_told_nothing(tmp_path: Path, source: Path) -> None:
    server, (tls, key) = Https(), served(tmp_path)
    async with answering(server.answer, tls) as url:
        assert "CERTIFICATE_VERIFY_FAILED" in await refusal(order(url, source))
        other = new_key().public_data
        assert "another public key" in await refusal(order(url, source, host_key=other))
        assert server.found == []
        server.status = 507
        assert "PUT /x.tar.gz: 507 Insufficient Storage" in await refusal(order(url, source, host_key=key))


def served(folder: Path) -> tuple[ssl.SSLContext, bytes]:
    """The TLS of a server whose authority nobody trusts, and its public key in SSH's form."""
    pair = made("files", usage=SERVER, names=("localhost",))
    for name, text in (("tls.crt", pair.pem), ("tls.key", pair.key_pem)):
        (folder / name).write_text(text)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    public = pair.key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    return context, base64.b64decode(public.split()[1])


@pytest.mark.parametrize(
    ("url", "where"),
    [
        ("sftp://127.0.0.1:22/path", ("sftp", "127.0.0.1", 22, "/path/f")),
        ("sftp://[2001:db8::1]:22/path/", ("sftp", "2001:db8::1", 22, "/path/f")),
        ("[2001:db8::1]:22/path", ("sftp", "2001:db8::1", 22, "/path/f")),
        ("10.92.23.154:2222/path", ("sftp", "10.92.23.154", 2222, "/path/f")),
        ("https://files.example.com", ("https", "files.example.com", 443, "/f")),
        ("s3://[2001:db8::1]:9000/b/p/", ("s3", "2001:db8::1", 9000, "/b/p/f", "us-east-1")),
        ("s3://s3.example.com/b?region=eu-west-1", ("s3", "s3.example.com", 443, "/b/f", "eu-west-1")),
    ],
)
def test_where_a_url_leads(url: str, where: tuple[Any, ...]) -> None:
    found = msgspec.structs.astuple(target(url, "f"))
    assert found == (where if len(where) == len(found) else (*where, ""))


def test_a_request_to_s3_is_signed_as_in_its_documentation() -> None:
    """The example "PUT Object" of Amazon's page on Signature Version 4."""
    headers = {
        "date": "Fri, 24 May 2013 00:00:00 GMT",
        "host": "examplebucket.s3.amazonaws.com",
        "x-amz-date": "20130524T000000Z",
        "x-amz-storage-class": "REDUCED_REDUNDANCY",
        "x-amz-content-sha256": hashlib.sha256(b"Welcome to Amazon S3.").hexdigest(),
    }
    found = signed(
        "PUT", encoded("/test$file.text"), headers, region="us-east-1", key="AKIAIOSFODNN7EXAMPLE",
        secret="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )  # fmt: skip
    assert found["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
        "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,"
        "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"
    )


async def test_a_file_goes_to_s3_with_a_signature_and_only_with_a_pair_of_keys(
    tmp_path: Path, source: Path
) -> None:
    server, (tls, key) = Https(), served(tmp_path)
    async with answering(server.answer, tls) as url:
        bucket = f"{url.replace('https', 's3')}/bundles?region=eu-west-1"
        await uploaded(order(bucket, source, host_key=key))
        ((path, sent, data),) = server.found
        assert (path, data) == ("/bundles/x.tar.gz", DATA)
        assert f"Credential={USER}/" in sent
        assert "/eu-west-1/s3/aws4_request,SignedHeaders=host;x-amz-content-sha256;x-amz-date," in sent
        assert PASSWORD not in sent
        with pytest.raises(UploadFailed, match="an S3 server takes BasicAuthentication"):
            await uploaded(order(bucket, source, host_key=key, credentials=Credentials(bearer_token="t")))


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a/b",
        "sftp://u:p@a/b",
        "sftp://a:99999/b",
        "https://a/b?c",
        "http://a/b",
        "s3://a",
        "s3://a/b?c=d",
        "",
    ],
)
def test_a_url_that_leads_nowhere_is_refused(url: str) -> None:
    with pytest.raises(Invalid, match=r"fileServer\.url"):
        target(url, "f")
