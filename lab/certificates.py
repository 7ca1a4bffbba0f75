"""Keys, certificates and kubeconfigs of a lab's cluster (what `kubeadm init phase certs all` makes)."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = datetime.timedelta(days=3650)


class Authority(msgspec.Struct, frozen=True):
    """A certificate authority and the directory its certificates are written to."""

    directory: Path
    stem: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


class Pair(msgspec.Struct, frozen=True):
    """Files of a certificate and its key."""

    certificate: Path
    key: Path


def _subject(name: str, groups: tuple[str, ...]) -> x509.Name:
    organisations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, g) for g in groups]
    return x509.Name([*organisations, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(subject: x509.Name, issuer: x509.Name, *, ca: bool) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not ca,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(usage, critical=True)
    )


def _write(
    directory: Path, stem: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate
) -> Pair:
    pair = Pair(directory / f"{stem}.crt", directory / f"{stem}.key")
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    write_key(pair.key, key)
    return pair


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write a private key as PEM that its owner alone can read."""
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )


def authority(directory: Path, stem: str, name: str) -> Authority:
    """A new self-signed authority, written to `directory`/`stem`.crt and .key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject(name, ())
    certificate = _builder(subject, subject, ca=True).public_key(key.public_key()).sign(key, hashes.SHA256())
    _write(directory, stem, key, certificate)
    return Authority(directory, stem, key, certificate)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def issue(
    ca: Authority, stem: str, name: str, *, groups: tuple[str, ...] = (), sans: tuple[str, ...] = ()
) -> Pair:
    """A certificate for client and server use; `name` is its CN (the Kubernetes user), `groups` its O (the groups)."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject(name, groups), ca.certificate.subject, ca=False).add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
        critical=False,
    )
    if sans:
        names = x509.SubjectAlternativeName([_alternative(s) for s in sans])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.public_key(key.public_key()).sign(ca.key, hashes.SHA256())
    return _write(ca.directory, stem, key, certificate)


def service_account_keys(directory: Path) -> None:
    """sa.key signs service account tokens, sa.pub verifies them."""
    key = ec.generate_private_key(ec.SECP256R1())
    write_key(directory / "sa.key", key)
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (directory / "sa.pub").write_bytes(public)


def kubeconfig(path: Path, server: str, ca: Path, client: Pair) -> None:
    """A kubeconfig that needs no other file. `server` is a URL."""

    def inline(file: Path) -> str:
        return base64.b64encode(file.read_bytes()).decode()

    user = {
        "client-certificate-data": inline(client.certificate),
        "client-key-data": inline(client.key),
    }
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [
            {"name": "lab", "cluster": {"server": server, "certificate-authority-data": inline(ca)}}
        ],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
        "users": [{"name": "lab", "user": user}],
    }
    path.touch(mode=0o600)
    path.write_bytes(msgspec.yaml.encode(config))
