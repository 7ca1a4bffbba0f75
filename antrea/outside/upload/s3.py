"""Headers that prove to an S3 server who sends a request: AWS Signature Version 4.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

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
