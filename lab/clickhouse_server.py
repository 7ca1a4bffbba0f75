"""clickhouse_server.py FOLDER: ClickHouse's own engine behind its HTTP interface, as far as tests use that.

No registry has a server of it, and its engine (package chdb-core) has no port. A program without this package: it runs in a Pod, too.
The password is CLICKHOUSE_PASSWORD of the environment, if that is set.
"""

from __future__ import annotations

import argparse
import importlib
import os
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

PASSWORD = os.environ.get("CLICKHOUSE_PASSWORD", "")
ENGINE = ThreadPoolExecutor(1)
"""The one thread that has the session, which another one would wait for without end."""


class Handler(BaseHTTPRequestHandler):
    """One statement a request, one after the other."""

    protocol_version = "HTTP/1.1"
    session: Any

    def do_POST(self) -> None:
        data = self._body()
        parameters = dict(parse_qsl(urlsplit(self.path).query))
        try:
            if PASSWORD and self.headers.get("X-ClickHouse-Key") != PASSWORD:
                status, answer = 403, b"Code: 516. DB::Exception: Authentication failed"
            else:
                status, answer = 200, self._carried_out(parameters, data)
        except Exception as error:  # noqa: BLE001 (the answer has the error)
            status, answer = 500, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _carried_out(self, parameters: dict[str, str], data: bytes) -> bytes:
        sql, _, form = parameters["query"].partition(" FORMAT ")
        values = {name[6:]: value for name, value in parameters.items() if name.startswith("param_")}
        return ENGINE.submit(self._run, sql, form, values, data).result()

    def _run(self, sql: str, form: str, values: dict[str, str], data: bytes) -> bytes:
        if not data:
            return bytes(self.session.query(sql, form or "TabSeparated", params=values or None).bytes())
        with self.session.send_insert(sql, form) as rows:
            rows.append(data)
            rows.finish()
        return b""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body


class Server(ThreadingHTTPServer):
    """With the address :: over both families."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int]) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, Handler)


def main() -> None:
    """Serve the database of a folder over HTTP, and over TLS if a certificate is given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--address", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--tls-port", type=int, default=8443)
    parser.add_argument("--certificate", default="", help="folder of tls.crt and tls.key [default: no TLS]")
    given = parser.parse_args()
    Handler.session = ENGINE.submit(
        lambda: importlib.import_module("chdb.session").Session(given.folder)
    ).result()
    if given.certificate:
        server = Server((given.address, given.tls_port))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{given.certificate}/tls.crt", f"{given.certificate}/tls.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    Server((given.address, given.port)).serve_forever()


if __name__ == "__main__":
    main()
