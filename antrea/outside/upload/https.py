"""One try to upload a file by HTTPS, with PUT."""

from __future__ import annotations

import base64
import http.client
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from antrea.errors import Invalid, Unavailable

if TYPE_CHECKING:
    from antrea.outside.upload.plan import Credentials, Target, UploadOrder


def upload(order: UploadOrder, target: Target) -> None:
    """Nothing is sent to a server that does not prove what it is. Raises Unavailable."""
    where = f"{target.host}:{target.port}"
    context = ssl.create_default_context()
    if order.host_key:
        # its key is what is known of it, whoever has signed its certificate
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    connection = http.client.HTTPSConnection(
        target.host, target.port, timeout=order.connect_seconds, context=context
    )
    try:
        connection.connect()
        if order.host_key and _key(connection.sock) != order.host_key:
            raise Unavailable(f"{where}: the server has another public key than fileServer.hostPublicKey")
        connection.sock.settimeout(order.seconds)
        with Path(order.source).open("rb") as file:
            headers = {"Content-Type": "application/octet-stream", **_authorization(order.credentials)}
            headers["Content-Length"] = str(Path(order.source).stat().st_size)
            connection.request("PUT", target.path, body=file, headers=headers)
            answer = connection.getresponse()
            answer.read(1 << 16)
        if not 200 <= answer.status < 300:
            raise Unavailable(f"{where}: PUT {target.path}: {answer.status} {answer.reason}")
    except (OSError, http.client.HTTPException) as why:
        raise Unavailable(f"{where}: {why}") from why
    finally:
        connection.close()


def _key(sock: ssl.SSLSocket) -> bytes:
    """Public key of the server's certificate, in SSH's wire format. Raises Unavailable."""
    shown = sock.getpeercert(binary_form=True)
    try:
        key = x509.load_der_x509_certificate(shown or b"").public_key()
        text = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return base64.b64decode(text.split()[1])
    except ValueError as why:
        raise Unavailable(f"the key of the server's certificate cannot be compared: {why}") from why


def _authorization(credentials: Credentials) -> dict[str, str]:
    if credentials.bearer_token:
        return {"Authorization": f"Bearer {_line(credentials.bearer_token)}"}
    if credentials.api_key:
        return {"X-API-Key": _line(credentials.api_key)}
    pair = f"{credentials.username}:{credentials.password}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _line(secret: str) -> str:
    """Raises Invalid for what is no line of a header."""
    text = secret.strip()
    if not text.isascii() or not text.isprintable():
        raise Invalid("authentication.authSecret", "a token or key is one line of printable ASCII")
    return text
