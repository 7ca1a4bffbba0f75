"""A server outside the cluster that tells each client the address it is seen with: `python3 whoami.py ADDRESS PORT`."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class WhoAmI(BaseHTTPRequestHandler):
    """Answers every GET with the client's address."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.client_address[0]}\n".encode())

    def log_message(self, *_: object) -> None:
        """Nothing: the answer says it all."""


ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), WhoAmI).serve_forever()
