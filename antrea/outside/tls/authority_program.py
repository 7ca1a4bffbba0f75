"""Makes certificate authorities and certificates of them, and reads when a certificate begins and ends, and who issued it.

`make` throws the authority's key away: a new serving certificate comes with a new authority, as upstream's does.
`authority` keeps it, for `issue`. Keys come by standard input, never by arguments, which everybody on the host reads.
parity: k8s.io/client-go/util/cert GenerateSelfSignedCertKey, pkg/flowaggregator/certificate/provider.go
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier


def _issue(
    subject: str, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, days: int,
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


def _usage(*, signs_certificates: bool, enciphers_keys: bool = False) -> x509.KeyUsage:
    """Return the usage of the key, without which clients that verify as RFC 5280 requires refuse an authority (Python from 3.13 on)."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=enciphers_keys,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


_USAGES = {"server": ExtendedKeyUsageOID.SERVER_AUTH, "client": ExtendedKeyUsageOID.CLIENT_AUTH}
_ROOT = ((x509.BasicConstraints(ca=True, path_length=None), True), (_usage(signs_certificates=True), True))


def _leaf(
    usage: ObjectIdentifier, alternatives: list[x509.GeneralName], *, enciphers_keys: bool = False
) -> tuple[tuple[x509.ExtensionType, bool], ...]:
    extensions: tuple[tuple[x509.ExtensionType, bool], ...] = (
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(signs_certificates=False, enciphers_keys=enciphers_keys), True),
        (x509.ExtendedKeyUsage([usage]), False),
    )
    return (*extensions, (x509.SubjectAlternativeName(alternatives), False)) if alternatives else extensions


def _made(names: list[str], addresses: list[str], days: int) -> str:

    stamp = int(datetime.now(UTC).timestamp())
    authority, subject = f"{names[0]}-ca@{stamp}", f"{names[0]}@{stamp}"
    # the key that is served is RSA as upstream's: tlsCipherSuites names suites of RSA
    signer, key = ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ip_address(address)) for address in addresses]
    leaf = _issue(
        subject, key, authority, signer, days,
        _leaf(ExtendedKeyUsageOID.SERVER_AUTH, alternatives, enciphers_keys=True),
    )  # fmt: skip
    return leaf + _issue(authority, signer, authority, signer, days, _ROOT) + _key_pem(key)


def _authority(name: str, days: int) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return _issue(name, key, name, key, days, _ROOT) + _key_pem(key)


def _issued(name: str, usage: str, names: list[str], addresses: list[str], days: int, by: bytes) -> str:
    """A certificate and its key, by the authority whose certificate and key `by` holds, with a NUL between them."""
    certificate, _, key_pem = by.partition(b"\0")
    signer = serialization.load_pem_private_key(key_pem, None)
    subject = x509.load_pem_x509_certificate(certificate).subject
    issuer = subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    # upstream's authorities have RSA keys
    if not isinstance(signer, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise SystemExit("the key of the authority is neither of an elliptic curve nor RSA")
    key = ec.generate_private_key(ec.SECP256R1())
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    alternatives += [x509.IPAddress(ip_address(address)) for address in addresses]
    return _issue(name, key, str(issuer), signer, days, _leaf(_USAGES[usage], alternatives)) + _key_pem(key)


def _key_pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _is_issued(certificate: bytes, authority: bytes) -> bool:
    leaf, root = x509.load_pem_x509_certificate(certificate), x509.load_pem_x509_certificate(authority)
    try:
        leaf.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _listed(text: str) -> list[str]:
    return text.split(",") if text else []


def _main(action: str, *arguments: str) -> None:
    if action == "make":
        names, addresses, days = arguments
        sys.stdout.write(_made(_listed(names), _listed(addresses), int(days)))
    elif action == "authority":
        sys.stdout.write(_authority(arguments[0], int(arguments[1])))
    elif action == "issue":
        name, usage, names, addresses, days = arguments
        by = sys.stdin.buffer.read()
        sys.stdout.write(_issued(name, usage, _listed(names), _listed(addresses), int(days), by))
    elif action == "issued":
        certificate, _, authority = sys.stdin.read().partition("\0")
        sys.stdout.write("yes" if _is_issued(certificate.encode(), authority.encode()) else "no")
    elif action == "term":
        loaded = x509.load_pem_x509_certificate(sys.stdin.read().encode())
        begin, end = loaded.not_valid_before_utc.timestamp(), loaded.not_valid_after_utc.timestamp()
        sys.stdout.write(f"{begin} {end}")


if __name__ == "__main__":
    _main(*sys.argv[1:])
