"""TLS of a client, the same with every version of Python."""

from __future__ import annotations

import ssl

from antrea.outside.tls.pem import ascii_pem


def client_context(*, cafile: str | None = None, cadata: str | None = None) -> ssl.SSLContext:
    """Verify servers by these CAs, or by the system's if there are none; as Go does, whose programs made the certificates.

    From Python 3.13 on the default also refuses what RFC 5280 asks for and many clusters' authorities lack: the identifier
    of the authority's key, the key usage of a CA, the mark that its basic constraints are critical.
    """
    context = ssl.create_default_context(cafile=cafile, cadata=ascii_pem(cadata) if cadata else None)  # noqa: TID251
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
