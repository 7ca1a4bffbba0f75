"""Makes a certificate authority and a serving certificate of it, or reads when a certificate begins and ends.

The authority's key is thrown away: a new serving certificate comes with a new authority, as upstream's does.
parity: k8s.io/client-go/util/cert GenerateSelfSignedCertKey
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def _issue(
    subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey, days: int,
    extensions: tuple[tuple[x509.ExtensionType, bool], ...],
) -> str:  # fmt: skip

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(named(subject))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # an hour back, for clocks that differ
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """What the key is for, without which clients that verify as RFC 5280 asks refuse an authority (Python from 3.13 on)."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def _made(names: list[str], addresses: list[str], days: int) -> str:

    stamp = int(datetime.now(UTC).timestamp())
    authority, subject = f"{names[0]}-ca@{stamp}", f"{names[0]}@{stamp}"
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ip_address(address)) for address in addresses]
    leaf = _issue(
        subject, key, authority, signer, days,
        (
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (_usage(signs_certificates=False), True),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
            (x509.SubjectAlternativeName(alternatives), False),
        ),
    )  # fmt: skip
    root = _issue(
        authority, signer, authority, signer, days,
        (
            (x509.BasicConstraints(ca=True, path_length=None), True),
            (_usage(signs_certificates=True), True),
        ),
    )  # fmt: skip
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return leaf + root + key_pem.decode()


def _main(action: str, *words: str) -> None:
    if action == "make":
        names, addresses, days = words
        sys.stdout.write(_made(names.split(","), addresses.split(",") if addresses else [], int(days)))
    elif action == "term":
        found = x509.load_pem_x509_certificate(sys.stdin.read().encode())
        begin, end = found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()
        sys.stdout.write(f"{begin} {end}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
