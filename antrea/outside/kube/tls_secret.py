"""A certificate with its key in a Secret of type kubernetes.io/tls."""

from __future__ import annotations

import base64
import ssl
import time
from typing import TYPE_CHECKING, Final

from antrea.decoding import decode_base64
from antrea.errors import Invalid
from antrea.outside.log import klog
from antrea.outside.tls import authority
from antrea.outside.tls.pem import decode_pem
from antrea.outside.tls.server_context import Certificate, load_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.outside.kube.client import Kube
    from antrea.outside.kube.secret import SecretData

log = klog.logger(__name__)

RENEW_BEFORE: Final = 90 * 86400.0
"""Seconds before its end at which a certificate is made anew."""


async def save(
    kube: Kube, path: str, secret: SecretData | None, pair: Certificate, labels: Mapping[str, str]
) -> None:
    """Write the pair to the Secret at `path`, which was read as `secret`. Raises Unavailable; Refused, also if another was faster."""
    data = {"tls.crt": _text(pair.certificate_pem), "tls.key": _text(pair.key_pem)}
    name = path.rpartition("/")[2]
    if secret is None:
        meta = {"name": name, "labels": dict(labels)}
        kind = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
        await kube.create_named(path, {**kind, "metadata": meta, "data": data})
    else:
        # with the version that was read, so that of two replicas one is refused and takes the other's pair
        version = {"resourceVersion": secret.metadata.resource_version}
        await kube.patch(path, {"metadata": version, "data": data})
    log.info("Saved a new certificate", secret=name)


def pair_of(secret: SecretData) -> Certificate | None:
    """The pair of the Secret, or None if it has none that can be used."""
    try:
        certificate, key = (
            decode_pem(decode_base64(secret.data.get(name, ""), name)) for name in ("tls.crt", "tls.key")
        )
        pair = Certificate(certificate, key)
        load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), pair)
    except Invalid as error:
        log.warning("The Secret holds no usable certificate", secret=secret.metadata.name, err=str(error))
        return None
    return pair


def lasts(pair: Certificate) -> bool:
    """Neither about to end nor made by a clock far ahead: peers reject it before its validity begins. Raises Unavailable."""
    begin, end = authority.term(pair.certificate_pem)
    return begin <= time.time() < end - RENEW_BEFORE


def _text(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()
