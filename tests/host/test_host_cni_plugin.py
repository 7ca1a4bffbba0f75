"""The plugin alone, with the sanitizers: what it sends, what it prints, and that nothing keeps it waiting."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from cni_node import ROOT, sanitized_plugin

from antrea.apis.cni import VERSIONS, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT = 1 << 20


class Peer:
    """The other end of the socket: reads one line, if it `reads`, sends `parts`, and closes, unless it `hangs`."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="cni-"))
        self.path = self.directory / "cni.sock"
        self.requests: list[bytes] = []
        self._threads: list[threading.Thread] = []
        self._end = threading.Event()

    def serve(self, *parts: bytes, reads: bool = True, hangs: bool = False) -> None:
        door = socket.socket(socket.AF_UNIX)
        self.path.unlink(missing_ok=True)
        door.bind(str(self.path))
        door.listen()

        def answer() -> None:
            with door, door.accept()[0] as plugin, contextlib.suppress(BrokenPipeError):
                if reads:
                    self.requests.append(plugin.makefile("rb").readline())
                for part in parts:
                    plugin.sendall(part)
                if hangs:
                    self._end.wait(30)

        self._threads.append(threading.Thread(target=answer))
        self._threads[-1].start()

    def stop(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(10)
        shutil.rmtree(self.directory)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    try:
        yield peer
    finally:
        peer.stop()


def run(stdin: bytes, command: str = "ADD", **environment: str) -> tuple[int, bytes]:
    """(exit status, stdout); a sanitizer's complaint fails the test."""
    done = subprocess.run(
        [sanitized_plugin()],
        input=stdin,
        env={"PATH": os.environ["PATH"], "CNI_COMMAND": command, **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert done.stderr == b""
    return done.returncode, done.stdout


def config(peer: Peer, **more: object) -> bytes:
    return json.dumps({"cniSocket": str(peer.path), **more}).encode()


def refusal(code: int, msg: str, details: str = "") -> tuple[int, bytes]:
    """What the plugin says by itself."""
    error = {"cniVersion": "1.1.0", "code": code, "msg": msg} | ({"details": details} if details else {})
    return 1, json.dumps(error, separators=(",", ":")).encode() + b"\n"


def test_the_plugin_is_one_static_file_of_at_most_200_lines(tmp_path: Path) -> None:
    source = ROOT / "cni" / "antrea.c"
    assert source.read_text().count("\n") <= 200
    subprocess.run(["make", "-s", "-C", ROOT / "cni", "antrea-cni"], check=True)
    shutil.copy(ROOT / "cni" / "antrea-cni", tmp_path / "antrea")
    headers = subprocess.check_output(["readelf", "-lW", tmp_path / "antrea"], text=True)
    assert "INTERP" not in headers
    assert json.loads(run_plain(tmp_path / "antrea"))["supportedVersions"] == list(VERSIONS)


def run_plain(plugin: Path) -> bytes:
    return subprocess.run(
        [plugin], input=b"{}", env={"CNI_COMMAND": "VERSION"}, capture_output=True, check=True
    ).stdout


def test_version_is_answered_without_the_agent() -> None:
    status, stdout = run(b'{"cniVersion":"1.0.0"}', "VERSION")
    assert (status, json.loads(stdout)) == (
        0,
        {"cniVersion": VERSIONS[-1], "supportedVersions": list(VERSIONS)},
    )


def test_environment_and_stdin_arrive_as_they_are(peer: Peer) -> None:
    peer.serve(b'0{"a":1}\n')
    every = "".join(map(chr, range(0x20))) + '"\\/\x7f äöü 世界 \N{GRINNING FACE}'
    stdin = config(peer) + every.encode()
    environment = {
        "CNI_CONTAINERID": 'c"1\\',
        "CNI_NETNS": "/var/run/netns/\n",
        "CNI_IFNAME": "eth0",
        "CNI_ARGS": "K8S_POD_NAME=ä;X=\t",
        "CNI_PATH": "/opt/cni/bin",
    }
    assert run(stdin, **environment) == (0, b'{"a":1}\n')
    assert msgspec.json.decode(peer.requests[0], type=Request) == Request(
        api=1,
        command="ADD",
        container_id='c"1\\',
        netns="/var/run/netns/\n",
        if_name="eth0",
        args="K8S_POD_NAME=ä;X=\t",
        path="/opt/cni/bin",
        config=stdin.decode(),
    )


def test_octets_that_are_not_utf8_arrive_for_the_agent_to_refuse(peer: Peer) -> None:
    peer.serve(b"1{}\n")
    assert run(config(peer) + b"\xff\xfe", "DEL") == (1, b"{}\n")
    assert b"\xff\xfe" in peer.requests[0]


def test_an_empty_success_prints_nothing_and_an_error_prints_its_json(peer: Peer) -> None:
    peer.serve(b"0\n")
    assert run(config(peer), "DEL") == (0, b"")
    peer.serve(b'1{"code":7}\n')
    assert run(config(peer), "DEL") == (1, b'{"code":7}\n')


def test_an_answer_may_come_octet_by_octet_and_be_large(peer: Peer) -> None:
    text = b"0" + b"[" + b"1," * 2000 + b"1]\n"
    peer.serve(*(text[i : i + 1] for i in range(len(text))))
    assert run(config(peer)) == (0, text[1:])
    text = b"0" + b"x" * (LIMIT - 2) + b"\n"
    peer.serve(text, b"")
    assert run(config(peer))[0] == 0
    peer.serve(b"0" + b"x" * (LIMIT + 10) + b"\n")
    assert run(config(peer))[0] == 1


@pytest.mark.parametrize("answer", [b"", b"0", b"\n", b"0{", b'1{"code":7}', b"2{}\n", b"{}\n"])
def test_an_answer_cut_short_is_not_believed(peer: Peer, answer: bytes) -> None:
    peer.serve(answer)
    gone = refusal(11, "antrea-agent went away before it answered, try again later")
    assert run(config(peer)) == gone


def test_an_agent_that_is_away_is_waited_for_a_little(peer: Peer) -> None:
    away = "antrea-agent is not available on this Node, try again later"
    start = time.monotonic()
    assert run(config(peer)) == refusal(11, away, str(peer.path))
    assert time.monotonic() - start >= 3
    threading.Timer(0.5, peer.serve, [b"0\n"]).start()
    assert run(config(peer)) == (0, b"")
    assert run(config(peer), "STATUS") == refusal(50, away, str(peer.path))


@pytest.mark.parametrize(("command", "code"), [("ADD", 11), ("STATUS", 50)])
def test_an_agent_that_does_not_answer_is_waited_for_a_bounded_time(
    peer: Peer, command: str, code: int
) -> None:
    late = refusal(code, "antrea-agent did not answer in time, try again later")
    peer.serve(hangs=True)
    assert run(config(peer), command, ANTREA_CNI_TIMEOUT_MS="300") == late
    peer.serve(b"0{", hangs=True)
    assert run(config(peer), command, ANTREA_CNI_TIMEOUT_MS="300") == late
    peer.serve(reads=False, hangs=True)
    assert run(config(peer, x="y" * (LIMIT // 2)), command, ANTREA_CNI_TIMEOUT_MS="300") == late


def test_a_stdin_that_does_not_end_is_waited_for_a_bounded_time() -> None:
    with subprocess.Popen(
        [sanitized_plugin()],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={"CNI_COMMAND": "ADD", "ANTREA_CNI_TIMEOUT_MS": "300"},
    ) as plugin:
        assert plugin.stdout
        assert (plugin.stdout.read(), plugin.wait(10)) == (
            refusal(11, "antrea-agent did not answer in time, try again later")[1],
            1,
        )


def test_stdin_of_one_mib_is_forwarded_and_one_octet_more_is_refused(peer: Peer) -> None:
    peer.serve(b"0\n")
    whole = config(peer).ljust(LIMIT)
    assert run(whole) == (0, b"")
    assert json.loads(peer.requests[0])["config"].encode() == whole
    assert run(whole + b" ") == refusal(6, "the network configuration on stdin is larger than 1 MiB")
    peer.serve(b"0\n")
    assert run(config(peer).ljust(LIMIT, b"\0")) == (0, b"")
    assert len(peer.requests[1]) > 5 * LIMIT


SOCKET_KEYS: list[tuple[Callable[[str], str], bool]] = [
    (lambda path: f'{{ "a" : {{"cniSocket":"/x"}}, "cniSocket"\t:\n"{path}" }}', True),
    (lambda path: f'{{"a":"\\"cniSocket\\":\\"/x\\"","cniSocket":"{path}"}}', True),
    (lambda path: f'{{"a":["cniSocket","/x"],"b":"}}{{","cniSocket":"{path}"}}', True),
    (lambda path: f'{{"cniSocketX":"/x","cniSocke":"/x","cniSocket":"{path}"}}', True),
    (lambda path: f'{{"cniSocket":5,"cniSocket":"{path}"}}', True),
    (lambda path: f'{{"x":{{"cniSocket":"{path}"}}}}', False),
    (lambda path: f'["cniSocket","{path}"]', False),
    (lambda path: f'"cniSocket":"{path}"', False),
]


@pytest.mark.parametrize("number", range(len(SOCKET_KEYS)))
def test_only_the_top_level_key_names_the_socket(peer: Peer, number: int) -> None:
    text, found = SOCKET_KEYS[number]
    if found:
        peer.serve(b"0\n")
        assert run(text(str(peer.path)).encode()) == (0, b"")
    else:
        status, stdout = run(text(str(peer.path)).encode(), ANTREA_CNI_TIMEOUT_MS="200")
        assert (status, str(peer.path) in stdout.decode()) == (1, False)


@pytest.mark.parametrize("path", ["", "/" * 108, "/a\\u0041", "/a\\", '/a\\"b'])
def test_a_socket_path_that_cannot_be_one_is_refused(path: str) -> None:
    msg = "cniSocket: not a path of 1 to 107 octets without backslashes"
    assert run(f'{{"cniSocket":"{path}"}}'.encode()) == refusal(7, msg)


@pytest.mark.parametrize(
    "stdin",
    [
        b"",
        b"\0",
        b"{",
        b'{"',
        b'{"cniSocket',
        b'{"cniSocket"',
        b'{"cniSocket":',
        b"\\",
        b'{"a\\',
        b"}" * 99,
        b'"' * 99,
    ],
)
def test_no_stdin_confuses_it(stdin: bytes) -> None:
    status, stdout = run(stdin, ANTREA_CNI_TIMEOUT_MS="100")
    assert (status, json.loads(stdout)["code"]) == (1, 11)


def test_without_a_command_it_says_what_it_is() -> None:
    done = subprocess.run(
        [sanitized_plugin()], env={}, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    msg = "CNI_COMMAND is not set: this is a CNI plugin, container runtimes start it"
    assert (done.returncode, done.stdout, done.stderr) == (*refusal(4, msg), b"")


@contextlib.contextmanager
def full_pipe() -> Iterator[tuple[int, int]]:
    """Its ends: nobody reads, and not one octet more fits."""
    reading, writing = os.pipe()
    try:
        os.set_blocking(writing, False)
        with contextlib.suppress(BlockingIOError):
            while os.write(writing, bytes(4096)):
                pass
        os.set_blocking(writing, True)
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("case", ["success", "error", "refusal", "late", "version", "no command"])
def test_a_runtime_that_does_not_read_keeps_it_for_a_bounded_time(peer: Peer, case: str) -> None:
    command = {"version": "VERSION", "no command": ""}.get(case, "ADD")
    if case in ("success", "error", "late"):
        answer = {"success": b'0{"a":1}\n', "error": b'1{"code":7}\n', "late": b""}[case]
        peer.serve(answer, hangs=case == "late")
    environment = {"PATH": os.environ["PATH"], "ANTREA_CNI_TIMEOUT_MS": "300"}
    environment |= {"CNI_COMMAND": command} if command else {}
    stdin = b'{"cniSocket": ""}' if case == "refusal" else config(peer)
    with full_pipe() as (_, writing):
        done = subprocess.run(
            [sanitized_plugin()], input=stdin, env=environment, stdout=writing, stderr=subprocess.PIPE,
            check=False, timeout=60,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, b"")


def test_an_answer_is_printed_whole_to_a_runtime_that_reads_slowly(peer: Peer) -> None:
    body = b'{"a":"' + b"x" * 300_000 + b'"}'
    peer.serve(b"0" + body + b"\n")
    environment = {"PATH": os.environ["PATH"], "CNI_COMMAND": "ADD"}
    with subprocess.Popen(
        [sanitized_plugin()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as plugin:
        assert plugin.stdin is not None
        assert plugin.stdout is not None
        plugin.stdin.write(config(peer))
        plugin.stdin.close()
        got = b""
        while part := plugin.stdout.read(30_000):
            got += part
            time.sleep(0.02)
    assert (got, plugin.returncode) == (body + b"\n", 0)


def test_it_ends_with_an_error_when_its_answer_cannot_be_written(peer: Peer) -> None:
    peer.serve(b"0{}\n")
    with Path("/dev/full").open("wb") as full:
        environment = {"CNI_COMMAND": "ADD", "PATH": os.environ["PATH"]}
        done = subprocess.run(
            [sanitized_plugin()],
            input=config(peer),
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"")
