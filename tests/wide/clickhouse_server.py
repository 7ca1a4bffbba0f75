"""clickhouse_server.py PORT FOLDER: ClickHouse's engine behind its HTTP interface, as far as the aggregator uses that."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qsl, urlsplit

from chdb.session import Session  # type: ignore[import-not-found]

SESSION = Session(sys.argv[2])


class Handler(BaseHTTPRequestHandler):
    """One statement a request."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        data = self._body()
        asked = dict(parse_qsl(urlsplit(self.path).query))
        sql, _, form = asked["query"].partition(" FORMAT ")
        values = {name[6:]: value for name, value in asked.items() if name.startswith("param_")}
        status, answer = 200, b""
        try:
            if self.headers.get("X-ClickHouse-Key") != "let me in":
                status, answer = 403, b"Code: 516. DB::Exception: Authentication failed"
            elif data:
                with SESSION.send_insert(sql, form) as rows:
                    rows.append(data)
                    rows.finish()
            else:
                answer = SESSION.query(sql, form or "TabSeparated", params=values or None).bytes()
        except Exception as why:
            status, answer = 500, str(why).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        found = b""
        while size := int(self.rfile.readline(), 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found


HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
