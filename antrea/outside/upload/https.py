"""One try to upload a file by HTTPS, with PUT; to an S3 server with a signature (AWS Signature Version 4).

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote, unquote

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from antrea.decoding import decode_base64
from antrea.errors import Invalid, Unavailable
from antrea.outside.tls.client_context import client_context
from antrea.outside.upload.plan import TLS_PORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from antrea.outside.upload.plan import Credentials, Target, UploadOrder

ALGORITHM, SERVICE = "AWS4-HMAC-SHA256", "s3"


def encoded(path: str) -> str:
    """A path as it is sent and signed."""
    return quote(unquote(path), safe="/-_.~")


def signed(
    method: str, path: str, headers: Mapping[str, str], *, region: str, key: str, secret: str
) -> dict[str, str]:
    """These headers and Authorization; `path` is encoded, `headers` in lower case, with host, x-amz-date, x-amz-content-sha256."""
    names = ";".join(sorted(headers))
    canonical = [f"{name}:{headers[name].strip()}" for name in sorted(headers)]
    request = "\n".join([method, path, "", *canonical, "", names, headers["x-amz-content-sha256"]])
    moment = headers["x-amz-date"]
    scope = f"{moment[:8]}/{region}/{SERVICE}/aws4_request"
    text = "\n".join([ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()])
    derived = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        derived = _hmac(derived, part)
    signature = _hmac(derived, text).hex()
    given = f"Credential={key}/{scope},SignedHeaders={names},Signature={signature}"
    return {**headers, "Authorization": f"{ALGORITHM} {given}"}


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def upload(order: UploadOrder, target: Target) -> None:
    """Nothing is sent to a server that does not prove what it is. Raises Unavailable, Invalid."""
    where = f"{target.host}:{target.port}"
    context = client_context()
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
        path = encoded(target.path) if target.scheme == "s3" else target.path
        with Path(order.source).open("rb") as file:
            headers = {"Content-Type": "application/octet-stream", **_headers(order, target, path)}
            headers["Content-Length"] = str(Path(order.source).stat().st_size)
            answer = _answer(connection, path, file, headers)
            answer.read(1 << 16)
        if not 200 <= answer.status < 300:
            raise Unavailable(f"{where}: PUT {target.path}: {answer.status} {answer.reason}")
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(f"{where}: {error}") from error
    finally:
        connection.close()


def _answer(
    connection: http.client.HTTPSConnection, path: str, file: BinaryIO, headers: dict[str, str]
) -> http.client.HTTPResponse:
    """A server that refuses may answer, and close, before it has read the file. Raises OSError, HTTPException."""
    try:
        connection.request("PUT", path, body=file, headers=headers)
    except OSError as error:
        try:
            return connection.getresponse()
        except (OSError, http.client.HTTPException):
            raise error from None
    return connection.getresponse()


def _key(sock: ssl.SSLSocket) -> bytes:
    """Public key of the server's certificate, in SSH's wire format. Raises Unavailable."""
    shown = sock.getpeercert(binary_form=True)
    try:
        key = x509.load_der_x509_certificate(shown or b"").public_key()
        text = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        return decode_base64(text.split()[1], "key")
    except (ValueError, Invalid) as error:
        raise Unavailable(f"the key of the server's certificate cannot be compared: {error}") from error


def _headers(order: UploadOrder, target: Target, path: str) -> dict[str, str]:
    """Raises Invalid, OSError."""
    given = order.credentials
    if target.scheme != "s3":
        return _authorization(given)
    if not given.username:
        raise Invalid(
            "authentication.authType", "an S3 server takes BasicAuthentication: the access key and its secret"
        )
    host = f"[{target.host}]" if ":" in target.host else target.host
    with Path(order.source).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    headers = {
        "host": host if target.port == TLS_PORT else f"{host}:{target.port}",
        "x-amz-content-sha256": digest,
        "x-amz-date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
    }
    if given.session_token:
        headers["x-amz-security-token"] = _line(given.session_token)
    return signed(
        "PUT", path, headers, region=target.region, key=_line(given.username), secret=_line(given.password)
    )


def _authorization(credentials: Credentials) -> dict[str, str]:
    if credentials.bearer_token:
        return {"Authorization": f"Bearer {_line(credentials.bearer_token)}"}
    if credentials.api_key:
        return {"X-API-Key": _line(credentials.api_key)}
    pair = f"{credentials.username}:{credentials.password}".encode()
    return {"Authorization": f"Basic {base64.b64encode(pair).decode()}"}


def _line(secret: str) -> str:
    """Raises Invalid for what is not a line of a header."""
    text = secret.strip()
    if not text.isascii() or not text.isprintable():
        raise Invalid("authentication.authSecret", "a token or key is one line of printable ASCII")
    return text
