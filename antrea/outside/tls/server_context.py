"""TLS of a program's own HTTPS API, with its certificate in memory."""

from __future__ import annotations

import ssl
import subprocess
import sys
import tempfile

import msgspec

from antrea.errors import Invalid, Unavailable

_CERTIFICATE_ENDS = "-----END CERTIFICATE-----\n"

# Go's names of what TLS 1.2 may use, and OpenSSL's; TLS 1.3 chooses by itself in both
_CIPHERS = {
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_AES_128_GCM_SHA256": "",
    "TLS_AES_256_GCM_SHA384": "",
    "TLS_CHACHA20_POLY1305_SHA256": "",
}
VERSIONS = {
    "": ssl.TLSVersion.TLSv1_2,
    "VersionTLS10": ssl.TLSVersion.TLSv1,
    "VersionTLS11": ssl.TLSVersion.TLSv1_1,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}


class Certificate(msgspec.Struct, frozen=True):
    """PEM of a certificate that signs itself, and of its key."""

    certificate_pem: str
    key_pem: str


class SelfSigning:
    """A serving certificate that a process of its own is making: see antrea.outside.tls.self_signed_program."""

    def __init__(self, names: tuple[str, ...], addresses: tuple[str, ...], days: int = 365) -> None:
        """Begin; for these names and addresses, the first name is its subject. Raises Unavailable."""
        arguments = (",".join(names), ",".join(addresses), str(days))
        command = [sys.executable, "-P", "-m", "antrea.outside.tls.self_signed_program", *arguments]
        try:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
        except OSError as error:
            raise Unavailable(f"a serving certificate cannot be made: {error}") from error

    def result(self) -> Certificate:
        """Wait for it. Raises Unavailable if none can be made."""
        out, err = self._process.communicate()
        certificate, mark, rest = out.partition(_CERTIFICATE_ENDS)
        if self._process.returncode or not mark:
            raise Unavailable(f"a serving certificate cannot be made: {err.strip()[-200:]}")
        return Certificate(certificate + mark, rest)


def self_signed(names: tuple[str, ...], addresses: tuple[str, ...], days: int = 365) -> Certificate:
    """A serving certificate for these names and addresses; the first name is its subject. Raises Unavailable."""
    return SelfSigning(names, addresses, days).result()


def server_tls(
    certificate: Certificate | None, *, min_version: str = "", cipher_suites: str = ""
) -> ssl.SSLContext:
    """TLS of a server, by the keys tlsMinVersion and tlsCipherSuites; None: its certificate comes later. Raises Invalid."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = VERSIONS[min_version]
    names = [name.strip() for name in cipher_suites.split(",") if name.strip()]
    for name in names:
        if name not in _CIPHERS:
            raise Invalid(
                "tlsCipherSuites", f"{name!r} is not a cipher suite that TLS 1.2 or 1.3 can use here"
            )
    openssl = [_CIPHERS[name] for name in names if _CIPHERS[name]]
    if openssl:
        context.set_ciphers(":".join(openssl))
    if certificate is not None:
        load_pair(context, certificate)
    return context


def load_pair(context: ssl.SSLContext, pair: Certificate) -> None:
    """Let new connections of `context` present this certificate.

    Raises Invalid if it or its key cannot be used; Unavailable if that cannot be tried, as on a full disk.
    """
    # ssl reads certificate and key from files only
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(f"{pair.certificate_pem}\n{pair.key_pem}\n")
            file.flush()
            # an empty password, so that nobody is asked for one on the terminal
            context.load_cert_chain(file.name, password="")
    except (ssl.SSLError, ValueError) as error:
        raise Invalid("certificate", f"it or its key cannot be used: {error}") from error
    except OSError as error:
        raise Unavailable(f"certificate: {error}") from error
