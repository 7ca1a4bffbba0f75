"""A server's certificate is exchanged while it serves."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from antrea.errors import Unavailable
from antrea.outside.tls import authority
from antrea.outside.tls.server_context import Certificate, self_signed, server_tls
from antrea.outside.tls.serving_certificate import ServingCertificate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FIRST, SECOND = (authority.make(("localhost", "antrea"), ("127.0.0.1",)) for _ in range(2))


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while line := await reader.readline():
        writer.write(line)
    writer.close()


@asynccontextmanager
async def served(tls: ssl.SSLContext) -> AsyncIterator[int]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


class Connection:
    """A client's connection that trusts one pair's CA."""

    def __init__(self, port: int, trusted: Certificate, ciphers: str = "") -> None:
        self.port = port
        self.tls = ssl.create_default_context(cadata=trusted.certificate_pem)
        if ciphers:
            self.tls.maximum_version = ssl.TLSVersion.TLSv1_2
            self.tls.set_ciphers(ciphers)

    async def __aenter__(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.tls, server_hostname="localhost"
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def works(self) -> bool:
        self.writer.write(b"hello\n")
        return await self.reader.readline() == b"hello\n"


async def trusts(port: int, pair: Certificate) -> bool:
    try:
        async with Connection(port, pair) as connection:
            return await connection.works()
    except ssl.SSLCertVerificationError:
        return False


def write(file: Path, pair: Certificate) -> None:
    file.write_text(pair.certificate_pem + pair.key_pem)


async def test_new_connections_get_the_new_certificate_and_old_ones_go_on(tmp_path: Path) -> None:
    tls, file = server_tls(None), tmp_path / "pair.pem"
    write(file, FIRST)
    certificate = ServingCertificate(tls, file)
    assert certificate.load()
    async with served(tls) as port, Connection(port, FIRST) as old:
        assert await old.works()
        write(file, SECOND)
        assert certificate.load()
        answers = (await trusts(port, SECOND), await trusts(port, FIRST), await old.works())
        assert answers == (True, False, True)


AUTHORITY = authority.make_authority("antrea-ca")
OF_A_CURVE = authority.issue(AUTHORITY, "antrea", usage="server", names=("localhost",))
CLIENT = authority.issue(AUTHORITY, "kubelet", usage="client")


async def test_a_pair_with_another_type_of_key_replaces_the_one_before_it(tmp_path: Path) -> None:
    """A user's pair, with an RSA key and with that of an elliptic curve by turns, after a placeholder."""
    tls, file = server_tls(self_signed(("localhost",), ())), tmp_path / "pair.pem"
    certificate = ServingCertificate(tls, file)
    chain = Certificate(OF_A_CURVE.certificate_pem + AUTHORITY.certificate_pem, OF_A_CURVE.key_pem)
    async with served(tls) as port:
        for now, root in ((chain, AUTHORITY), (FIRST, FIRST), (chain, AUTHORITY)):
            write(file, now)
            certificate.load()
            for ciphers in ("ECDHE+aRSA:ECDHE+ECDSA", "ECDHE+ECDSA:ECDHE+aRSA"):
                async with Connection(port, root, ciphers) as connection:
                    assert await connection.works()


async def test_suites_and_versions_are_those_of_the_context(tmp_path: Path) -> None:
    tls, file = server_tls(None, cipher_suites="TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"), tmp_path / "pair.pem"
    write(file, FIRST)
    assert ServingCertificate(tls, file).load()
    async with served(tls) as port, Connection(port, FIRST, "ALL") as connection:
        chosen = connection.writer.get_extra_info("cipher")
        assert chosen[0] == "ECDHE-RSA-AES128-GCM-SHA256"
    tls, file = server_tls(None, min_version="VersionTLS13"), tmp_path / "pair.pem"
    assert ServingCertificate(tls, file).load()
    async with served(tls) as port:
        async with Connection(port, FIRST) as connection:
            assert connection.writer.get_extra_info("cipher")[1] == "TLSv1.3"
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with Connection(port, FIRST, "ALL") as connection:
                await connection.works()


@pytest.mark.parametrize("first", ["the certificate", "the authority"])
async def test_clients_are_verified_by_the_authorities_of_the_context(tmp_path: Path, first: str) -> None:
    tls, file, own = server_tls(None), tmp_path / "pair.pem", tmp_path / "own.pem"
    write(file, FIRST)
    write(own, CLIENT)
    certificate = ServingCertificate(tls, file)
    if first == "the certificate":
        assert certificate.load()
    tls.load_verify_locations(cadata=AUTHORITY.certificate_pem)
    tls.verify_mode = ssl.CERT_REQUIRED
    assert certificate.load()
    async with served(tls) as port:
        connection = Connection(port, FIRST)
        connection.tls.load_cert_chain(own)
        async with connection:
            assert await connection.works()


@pytest.mark.parametrize(
    "bad", ["", "no certificate", FIRST.certificate_pem, SECOND.certificate_pem + FIRST.key_pem]
)
async def test_what_cannot_be_used_leaves_the_last_good_one(tmp_path: Path, bad: str) -> None:
    tls, file = server_tls(None), tmp_path / "pair.pem"
    write(file, FIRST)
    certificate = ServingCertificate(tls, file)
    certificate.load()
    file.write_text(bad)
    assert certificate.load()
    async with served(tls) as port:
        assert await trusts(port, FIRST)


async def test_a_key_that_is_locked_asks_nobody_and_is_not_used(tmp_path: Path) -> None:
    locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIB\n-----END ENCRYPTED PRIVATE KEY-----\n"
    (tmp_path / "tls.crt").write_text(FIRST.certificate_pem)
    (tmp_path / "tls.key").write_text(locked)
    certificate = ServingCertificate(server_tls(None), tmp_path / "tls.crt", tmp_path / "tls.key")
    assert not certificate.load()


async def test_files_that_do_not_come_are_an_error_in_time(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"no serving certificate in .*pair\.pem after 0 s"):
        await ServingCertificate(server_tls(None), tmp_path / "pair.pem").ready(0)


def test_a_serving_certificate_comes_with_its_authority_and_lasts_a_year() -> None:
    import time

    assert FIRST.certificate_pem.count("BEGIN CERTIFICATE") == 2
    assert 364 < (authority.ends(FIRST.certificate_pem) - time.time()) / 86400 < 366


def test_a_client_that_is_strict_verifies_our_certificates(tmp_path: Path) -> None:
    leaf, own_ca = (f"-----BEGIN{one}" for one in FIRST.certificate_pem.split("-----BEGIN")[1:])
    alone = self_signed(("antrea-agent", "localhost"), ("127.0.0.1",)).certificate_pem
    for name, text, ca in (("leaf", leaf, own_ca), ("alone", alone, alone)):
        (tmp_path / name).write_text(text)
        (tmp_path / "ca").write_text(ca)
        words = ["-x509_strict", "-purpose", "sslserver", "-CAfile", f"{tmp_path}/ca", f"{tmp_path}/{name}"]
        done = subprocess.run(["openssl", "verify", *words], capture_output=True, text=True, check=False)
        assert (done.stdout, done.stderr) == (f"{tmp_path}/{name}: OK\n", "")


def test_what_is_no_certificate_has_no_end() -> None:
    with pytest.raises(Unavailable, match="certificate: "):
        authority.ends("x")
