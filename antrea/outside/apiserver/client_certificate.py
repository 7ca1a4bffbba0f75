"""Whether a client's certificate comes from these CAs and no other, and whom it names.

The TLS handshake has proved that the client holds the key, against all CAs of clients together; here a chain is
built to one bundle alone. Imported when the first certificate comes: cryptography takes 13 MiB.
Source: RFC 5280; k8s.io/apiserver/pkg/authentication/request/x509
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from antrea.outside.tls.pem import ascii_pem

if TYPE_CHECKING:
    from collections.abc import Sequence

DEPTH = 5
"""Intermediates at most."""


class Subject(msgspec.Struct, frozen=True):
    """Whom a certificate names: common name and organisations, and until when it is valid (seconds of Unix time)."""

    name: str
    groups: tuple[str, ...]
    until: float


def issued_by(
    bundle_pem: str, leaf: bytes, others: Sequence[bytes], at: datetime | None = None
) -> Subject | None:
    """The subject of the DER certificate `leaf` if a chain over `others` leads to a CA of the bundle, else None."""
    now = at or datetime.now(UTC)
    try:
        roots = x509.load_pem_x509_certificates(ascii_pem(bundle_pem).encode()) if bundle_pem.strip() else []
        first = x509.load_der_x509_certificate(leaf)
        between = [x509.load_der_x509_certificate(other) for other in others[:DEPTH]]
        until = _leads(first, between, roots, now) if _for_clients(first) else None
    except (ValueError, TypeError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        return None
    if until is None:
        return None
    names = first.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = first.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    name = str(names[0].value) if names else ""
    return Subject(name, tuple(str(group.value) for group in groups), until)


def _leads(
    certificate: x509.Certificate,
    between: Sequence[x509.Certificate],
    roots: Sequence[x509.Certificate],
    now: datetime,
    depth: int = DEPTH,
) -> float | None:
    """Return until when a chain from `certificate` to a root is valid, None if there is none."""
    if not _valid(certificate, now):
        return None
    until = certificate.not_valid_after_utc.timestamp()
    for root in roots:
        if _valid(root, now) and _signs(root, certificate):
            return min(until, root.not_valid_after_utc.timestamp())
    if depth:
        for issuer in between:
            if issuer is not certificate and _signs(issuer, certificate):
                rest = [other for other in between if other is not issuer]
                above = _leads(issuer, rest, roots, now, depth - 1)
                if above is not None:
                    return min(until, above)
    return None


def _valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _signs(issuer: x509.Certificate, certificate: x509.Certificate) -> bool:
    """Whether `issuer` is a CA and has signed `certificate`."""
    try:
        if not issuer.extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
    except x509.ExtensionNotFound:
        return False
    try:
        if not issuer.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign:
            return False
    except x509.ExtensionNotFound:
        pass
    try:
        certificate.verify_directly_issued_by(issuer)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _for_clients(leaf: x509.Certificate) -> bool:
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return ExtendedKeyUsageOID.CLIENT_AUTH in usages or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in usages
