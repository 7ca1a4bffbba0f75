"""The end of `antrea-lab visibility`: Ctrl-C while a browser holds connections."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from free_port import free_port

if TYPE_CHECKING:
    from pathlib import Path

SERVE = """
import asyncio, contextlib, socket, sys
from types import SimpleNamespace
from lab import flow_visibility, namespace

namespace.path = lambda *_: None
namespace.connect = lambda _, to, seconds: socket.create_connection(to, seconds)
lab = SimpleNamespace(record=SimpleNamespace(name="default"))
front = flow_visibility.listening(int(sys.argv[2]))
with contextlib.suppress(KeyboardInterrupt):
    asyncio.run(flow_visibility._serve(lab, front, int(sys.argv[1]), "a token", lambda text: print(text, flush=True)))
print("ended")
"""
"""What serves the page, with the aggregator at a port of this machine."""


def test_ctrl_c_ends_open_connections_and_prints_no_fault(tmp_path: Path) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as aggregator, (tmp_path / "said").open("w+") as said:
        inner = str(aggregator.getsockname()[1])
        # a shell that starts this in the background has SIGINT ignored
        words = ["env", "--default-signal=INT", sys.executable, "-c", SERVE, inner, str(port)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=said, text=True) as serving:
            assert serving.stdout
            lines = iter(serving.stdout.readline, "")
            assert any("Ctrl-C" in line for line in lines)
            with socket.create_connection(("127.0.0.1", port)) as browser, aggregator.accept()[0] as other:
                other.sendall(b"x")
                assert browser.recv(1) == b"x"
                serving.send_signal(signal.SIGINT)
                assert serving.wait(30) == 0
            assert [*lines] == ["ended\n"]
        said.seek(0)
        assert said.read() == ""
