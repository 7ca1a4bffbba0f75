"""One tier of a poll: `python3 poll.py ui`, `app` or `db`. Each listens on port 8080 and calls the next one by its Service.

`ui` has the page, `app` knows what can be chosen, `db` counts (in memory: votes are lost with its Pod).
"""

from __future__ import annotations

import html
import json
import os
import socket
import sys
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import parse_qs

CHOICES = ("red", "green", "blue")
NEXT = {"ui": "app", "app": "db", "db": ""}
MAX_BYTES = 4096
SECONDS = 3.0
PAGE = """<!doctype html>
<title>Poll</title>
<h1>Which colour?</h1>
<form method="post" action="/vote">{buttons}</form>
<footer>served by {host}</footer>
"""
counted: Counter[str] = Counter()
lock = Lock()


def call(tier: str, path: str, *, vote: bool = False) -> tuple[int, bytes]:
    """The answer of the next tier; 502 if there is none."""
    host = os.environ[f"POLL_{tier.upper()}_SERVICE_HOST"]
    try:
        with closing(HTTPConnection(host, 80, timeout=SECONDS)) as connection:
            connection.request("POST" if vote else "GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read()
    except (OSError, HTTPException) as no:
        return 502, f"no answer of {tier}: {no}\n".encode()


class Tier(BaseHTTPRequestHandler):
    """Requests to any of the tiers."""

    protocol_version = "HTTP/1.1"
    name = sys.argv[1]

    def do_GET(self) -> None:
        if self.path == "/healthz":
            self.answer(200, b"ok\n")
        elif self.name == "ui" and self.path == "/":
            self.answer_page()
        elif self.path == "/votes":
            self.answer(*self.votes())
        else:
            self.answer(404, b"no such page\n")

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MAX_BYTES)).decode()
        by_form = self.path == "/vote"
        choice = parse_qs(body).get("choice", [""])[0] if by_form else self.path.removeprefix("/votes/")
        status, text = self.vote(choice) if choice in CHOICES else (400, b"no such colour\n")
        if by_form and status == 200:
            self.send_response(303)
            self.send_header("Location", "/")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self.answer(status, text)

    def votes(self) -> tuple[int, bytes]:
        if tier := NEXT[self.name]:
            return call(tier, "/votes")
        with lock:
            return 200, json.dumps({choice: counted[choice] for choice in CHOICES}).encode()

    def vote(self, choice: str) -> tuple[int, bytes]:
        if tier := NEXT[self.name]:
            return call(tier, f"/votes/{choice}", vote=True)
        with lock:
            counted[choice] += 1
        return 200, b"counted\n"

    def answer_page(self) -> None:
        status, text = self.votes()
        if status != 200:
            self.answer(status, text)
            return
        votes = json.loads(text)
        buttons = "".join(
            f'<button name="choice" value="{one}">{one}: {votes[one]}</button>' for one in CHOICES
        )
        page = PAGE.format(buttons=buttons, host=html.escape(socket.gethostname()))
        self.answer(200, page.encode(), "text/html; charset=utf-8")

    def answer(self, status: int, body: bytes, kind: str = "text/plain") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


class Server(ThreadingHTTPServer):
    """Both families, where the Pod has both."""

    address_family = socket.AF_INET6

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()


Server(("::", 8080), Tier).serve_forever()
