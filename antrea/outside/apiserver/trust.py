"""Follows the CAs that kube-apiserver publishes, and requests client certificates of them in TLS."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from antrea.errors import Invalid
from antrea.outside.apiserver.authentication import Trust
from antrea.outside.kube.config_map import contents
from antrea.outside.log import klog
from antrea.outside.tls.pem import ascii_pem, read_pem

if TYPE_CHECKING:
    from antrea.outside.apiserver.authentication import Authentication
    from antrea.outside.kube.client import Kube

log = klog.logger(__name__)
NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"


async def follow_trust(
    kube: Kube, authentication: Authentication, tls: ssl.SSLContext, client_ca_file: str
) -> None:
    """Follow the ConfigMap until cancelled. An authority that it no longer names is no longer trusted from the next request on.

    Raises Invalid if clientCAFile cannot be read.
    """
    certificates = _read(client_ca_file)
    async for content in contents(kube, NAMESPACE, NAME):
        trust = Trust.of(content, certificates)
        authentication.trust = trust
        admit(tls, trust)
        log.info(
            "Loaded client CAs",
            configMap=NAME,
            frontProxy=bool(trust.front_ca),
            clients=bool(trust.client_ca),
        )


def admit(tls: ssl.SSLContext, trust: Trust) -> None:
    """New connections may present certificates of these CAs.

    A context never forgets a CA, which is harmless: the bundles in effect decide to whom a certificate belongs.
    """
    for bundle in (trust.client_ca, trust.front_ca):
        if bundle:
            try:
                tls.load_verify_locations(cadata=ascii_pem(bundle))
            except (ssl.SSLError, ValueError) as error:
                log.error("Failed to parse a CA bundle", configMap=NAME, err=str(error))
                continue
            tls.verify_mode = ssl.CERT_OPTIONAL


def _read(path: str) -> str:
    if not path:
        return ""
    try:
        return read_pem(path)
    except OSError as error:
        raise Invalid("clientCAFile", f"{path} cannot be read: {error}") from error
