"""Certificates of CAs that a test makes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
NOW = datetime.now(UTC)


class Made(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def key_pem(self) -> str:
        form = serialization.PrivateFormat.PKCS8
        return self.key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def made(
    name: str,
    by: Made | None = None,
    *,
    ca: bool = False,
    groups: tuple[str, ...] = (),
    days: int = 1,
    ago: int = 10,
    usage: ObjectIdentifier | None = CLIENT,
    names: tuple[str, ...] = (),
) -> Made:
    """Signed by `by`, or by itself, `ago` days ago; `days` below 0 is expired. `names` are those of a server."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
    subject += [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(subject))
        .issuer_name(by.certificate.subject if by else x509.Name(subject))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - timedelta(days=ago))
        .not_valid_after(NOW + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([x509.DNSName(one) for one in names])
        builder = builder.add_extension(alternatives, critical=False)
    if usage and not ca:
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    return Made(builder.sign(by.key if by else key, hashes.SHA256()), key)
