"""Which HTTP interface of a ClickHouse server a URL means, also one of the native protocol."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

NATIVE: Final = {"tcp": (9000, "http", 8123), "tls": (9440, "https", 8443)}
"""The port of a server's native protocol, with the HTTP interface that the same server has, all of them the defaults."""


def http_url(text: str) -> str:
    """The URL as it is, or of the native protocol's default ports that of the HTTP interface beside it.

    Raises ValueError for what is neither: at another port the HTTP interface may be anywhere.
    """
    url = urlsplit(text)
    if url.scheme in {"http", "https"} and url.hostname:
        return text
    if url.scheme not in NATIVE or not url.hostname:
        raise ValueError(f"{text!r} is not http(s)://host:port, such as http://clickhouse:8123")
    native, scheme, port = NATIVE[url.scheme]
    if url.port not in {None, native}:
        raise ValueError(
            f"{text!r} is the native protocol at another port than {native}: name the server's HTTP interface, "
            f"such as {scheme}://clickhouse:{port}"
        )
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return f"{scheme}://{host}:{port}"
