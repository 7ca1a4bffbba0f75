"""Makes a certificate that signs itself; a program of its own, so that no server keeps cryptography in memory.

It takes 13 MiB, for one signature at start. `serving.self_signed` runs this: names, then addresses, comma-separated, then days.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


def pem(names: list[str], addresses: list[str], days: int) -> tuple[str, str]:
    """Certificate and key; the first name is its subject."""
    # RSA as upstream: tlsCipherSuites names suites of RSA
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    now = datetime.now(UTC)
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ip_address(address)) for address in addresses]
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=True,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # an hour back, for clocks that differ
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        # clients that verify as RFC 5280 asks want to know what it may sign, and with which key (Python from 3.13 on)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(usage, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(key, hashes.SHA256())
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(serialization.Encoding.PEM).decode(), key_pem.decode()


def main(names: str, addresses: str, days: str) -> None:
    """Print the certificate and its key as PEM; the arguments are those of the command line, lists with commas."""
    sys.stdout.write("".join(pem(names.split(","), addresses.split(",") if addresses else [], int(days))))


if __name__ == "__main__":
    main(*sys.argv[1:])
