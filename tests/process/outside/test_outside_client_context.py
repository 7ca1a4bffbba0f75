"""A client takes what Go's clients take: a certificate of an authority that says little of itself."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from aiohttp import ClientConnectorCertificateError, ClientSession, web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from loopback import answering

from antrea.outside.tls.client_context import client_context
from antrea.outside.tls.server_context import Certificate, server_tls

if TYPE_CHECKING:
    from pathlib import Path

HOST = "localhost"


def terse() -> tuple[str, Certificate]:
    """A CA without key identifiers and key usage, whose constraints are not critical; and a server's certificate of it."""
    now, keys = datetime.now(UTC), [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    ca, server = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("ca", HOST))
    names = x509.SubjectAlternativeName([x509.DNSName(HOST)])
    made = []
    for subject, key, extension in (
        (ca, keys[0], x509.BasicConstraints(ca=True, path_length=None)),
        (server, keys[1], names),
    ):
        builder = x509.CertificateBuilder(ca, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        signed = builder.add_extension(extension, critical=False).sign(keys[0], hashes.SHA256())
        made.append(signed.public_bytes(Encoding.PEM).decode())
    key_pem = keys[1].private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return made[0], Certificate(made[1], key_pem)


async def answer(_: web.Request) -> web.Response:
    return web.Response(text="ok")


@pytest.mark.parametrize("given", ["text", "file"])
async def test_a_client_takes_a_certificate_of_an_authority_that_says_little(
    tmp_path: Path, given: str
) -> None:
    ca, pair = terse()
    (tmp_path / "ca.crt").write_text(ca)
    tls = client_context(cadata=ca) if given == "text" else client_context(cafile=str(tmp_path / "ca.crt"))
    async with answering(answer, server_tls(pair)) as url, ClientSession() as client:
        place = url.replace("127.0.0.1", HOST)
        async with client.get(place, ssl=tls) as found:
            assert await found.text() == "ok"
        strict = client_context(cadata=ca)
        strict.verify_flags |= ssl.VERIFY_X509_STRICT
        for refusing in (strict, client_context(cadata=terse()[0])):
            with pytest.raises(ClientConnectorCertificateError):
                await client.get(place, ssl=refusing)
