"""The controller as a process: starts, serves, refuses bad configuration, ends when told."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner

from antrea.config.controller import ControllerConfig
from antrea.controller.apiserver.process import ApiServerProcess
from antrea.controller.compute.metrics import controller_metrics
from antrea.controller.main import Places, main, run, start_frame
from antrea.engine import Facts
from antrea.errors import Invalid, Unavailable
from antrea.features.framework.config_validation import accept_controller
from antrea.outside.listener.listening_socket import SharedListener, listen
from antrea.outside.reload.configuration import Configuration
from antrea.outside.tls.server_context import Certificate, self_signed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from antrea.controller.apiserver.ipc import Start


def places(directory: Path) -> Places:
    return Places(directory / "token", directory / "certificates")


@pytest.fixture
def port() -> Iterator[int]:
    """That nobody else is given meanwhile, and that a server may listen at."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


def get(port: int, path: str, token: str = "") -> tuple[int, str]:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def deliver(frame: Start, made: Certificate) -> None:
    """Into the files that the front looks at."""
    certificate, key = Path(frame.certificate_file), frame.key_file
    certificate.parent.mkdir()
    if key:
        Path(key).write_text(made.key_pem)
    certificate.write_text(made.certificate_pem + ("" if key else made.key_pem))


def started(tmp_path: Path, text: str) -> subprocess.Popen[str]:
    (tmp_path / "antrea-controller.conf").write_text(text)
    command = [
        sys.executable,
        "-m",
        "antrea.controller.main",
        "--config",
        str(tmp_path / "antrea-controller.conf"),
    ]
    command += ["--certificate-dir", str(tmp_path / "certificates")]
    command += ["--token-file", str(tmp_path / "token"), "--logtostderr=true", "--v=0"]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_controller_serves_until_sigterm_and_warns_of_unknown_keys(tmp_path: Path, port: int) -> None:
    program = started(tmp_path, f"apiPort: {port}\nnodeIpam: {{}}\n")
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                assert get(port, "/readyz") == (200, "ok")
                break
            except OSError:
                time.sleep(0.05)
        token = (tmp_path / "token").read_text()
        assert get(port, "/featuregates", "wrong")[0] == 401
        gates = {row["name"]: row for row in json.loads(get(port, "/featuregates", token)[1])}
        assert gates["NodeIPAM"] == {
            "component": "controller", "name": "NodeIPAM", "status": "Enabled", "version": "BETA",
        }  # fmt: skip
        assert "AntreaProxy" not in gates
        samples = get(port, "/metrics", token)[1].splitlines()
        resident = [line for line in samples if line.startswith("process_resident_memory_bytes{")]
        assert [line.split(" ")[0].partition("{")[2] for line in resident] == [
            'process="serving"}',
            'process="computing"}',
        ]
        assert len([line for line in samples if line.startswith("# TYPE process_resident_memory_bytes")]) == 1
        assert get(port, "/endpoint", token) == (400, "pod must be provided\n")
        assert json.loads(get(port, "/version", token)[1])["gitVersion"].startswith("v")
        program.send_signal(signal.SIGTERM)
        _, err = program.communicate(timeout=60)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 0
    assert "unknown key nodeIpam is ignored: did you mean nodeIPAM?" in err
    assert '"Stopping antrea-controller"' in err


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("apiPort: x", "antrea-controller: antrea-controller.conf: apiPort: expected int, got a text\n"),
        ("featureGates: {Nope: true}", "antrea-controller: featureGates.Nope: unrecognized feature gate\n"),
    ],
)
def test_controller_bad_configuration_is_one_line_and_exit_1(tmp_path: Path, text: str, line: str) -> None:
    program = started(tmp_path, text)
    _, err = program.communicate(timeout=60)
    assert (program.returncode, err) == (1, line)


async def test_controller_metrics_show_what_the_computing_process_counts(tmp_path: Path, port: int) -> None:
    file = tmp_path / "antrea-controller.conf"
    file.write_text(f"apiPort: {port}\n")
    configuration = Configuration(ControllerConfig, accept_controller, file, tmp_path / "kept")
    front = ApiServerProcess(Facts())
    front.metrics = lambda: controller_metrics({"networkpolicies": 7}, {})
    await front.start(start_frame(*configuration.now.same_for_the_program, places(tmp_path)))
    hearing = asyncio.create_task(front.run())
    try:
        status, text = await asyncio.to_thread(get, port, "/metrics", (tmp_path / "token").read_text())
    finally:
        hearing.cancel()
        await front.stop()
    assert (status, "antrea_controller_network_policy_processed 7" in text.splitlines()) == (200, True)


async def test_controller_is_ready_once_it_has_the_certificate_that_the_api_server_verifies(
    tmp_path: Path, port: int
) -> None:
    """With the one for its probes, calls of webhooks failed for a moment after each start."""
    file, kubeconfig, made = tmp_path / "conf", tmp_path / "kubeconfig", self_signed(("antrea",), ())
    file.write_text(f"apiPort: {port}\n")
    cluster = {"server": "https://127.0.0.1:1"}  # nobody
    kubeconfig.write_text(
        json.dumps(
            {
                "current-context": "a",
                "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                "clusters": [{"name": "a", "cluster": cluster}],
                "users": [{"name": "a", "user": {"token": "t"}}],
            }
        )
    )
    configuration = Configuration(ControllerConfig, accept_controller, file, tmp_path / "kept")
    frame = start_frame(*configuration.now.same_for_the_program, places(tmp_path))
    front = ApiServerProcess(Facts())
    await front.start(msgspec.structs.replace(frame, kubeconfig=str(kubeconfig)))
    hearing = asyncio.create_task(front.run())
    try:
        status, text = await asyncio.to_thread(get, port, "/readyz")
        assert status == 500
        assert (
            f"[-]certificate failed: no serving certificate in {frame.certificate_file}" in text.splitlines()
        )
        assert (await asyncio.to_thread(get, port, "/livez"))[0] == 200
        deliver(frame, made)
        async with asyncio.timeout(60):
            while (await asyncio.to_thread(get, port, "/readyz")) != (200, "ok"):  # noqa: ASYNC110 (no event)
                await asyncio.sleep(0.05)
    finally:
        hearing.cancel()
        await front.stop()


async def test_controller_runs_in_a_loop_until_it_is_told_to_end(tmp_path: Path, port: int) -> None:
    file = tmp_path / "antrea-controller.conf"
    file.write_text(f"apiPort: {port}\nunheardOf: 1\n")
    configuration = Configuration(ControllerConfig, accept_controller, file, tmp_path / "kept")
    config, gates = configuration.now.same_for_the_program
    running = asyncio.create_task(run(configuration, places(tmp_path)))
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(answers, port):  # noqa: ASYNC110 (a port has no event)
            await asyncio.sleep(0.01)
        token = (tmp_path / "token").read_text()
        status, _ = await asyncio.to_thread(get, port, "/version", token)
        assert status == 200
        with pytest.raises(Unavailable, match=f"^port {port} cannot be opened: Address already in use"):
            await ApiServerProcess(Facts()).start(start_frame(config, gates, places(tmp_path / "other")))
        signal.raise_signal(signal.SIGTERM)
        await running
    assert not await asyncio.to_thread(answers, port)


async def test_a_controller_waits_for_the_port_that_the_one_before_it_still_has(
    tmp_path: Path, port: int
) -> None:
    file = tmp_path / "antrea-controller.conf"
    file.write_text(f"apiPort: {port}\n")
    configuration = Configuration(ControllerConfig, accept_controller, file, tmp_path / "kept")
    front, before = ApiServerProcess(Facts(), listener := SharedListener()), listen(port)
    starting = asyncio.create_task(
        front.start(start_frame(*configuration.now.same_for_the_program, places(tmp_path)))
    )
    done, _ = await asyncio.wait([starting], timeout=0.3)
    assert not done
    before.close()
    await starting
    assert front.port == port
    await front.stop()
    listener.close()


def children() -> list[str]:
    """Processes that this one has started."""
    return " ".join(tasks.read_text() for tasks in Path("/proc/self/task").glob("*/children")).split()


async def test_controller_that_is_cancelled_while_its_front_starts_leaves_no_process_behind(
    tmp_path: Path, port: int
) -> None:
    """A configuration that changes again would find the port taken, and the controller would end."""
    file, before = tmp_path / "conf", set(children())
    file.write_text(f"apiPort: {port}\n")
    configuration = Configuration(ControllerConfig, accept_controller, file, tmp_path / "kept")
    frame = start_frame(*configuration.now.same_for_the_program, places(tmp_path))
    starting = asyncio.create_task(ApiServerProcess(Facts()).start(frame))
    async with asyncio.timeout(60):
        while not set(children()) - before:  # noqa: ASYNC110 (a process has no event)
            await asyncio.sleep(0.01)
        starting.cancel()
        await asyncio.wait({starting})
    assert starting.cancelled()
    assert set(children()) == before


async def test_controller_what_only_the_user_can_change_is_told_so_by_the_front(
    tmp_path: Path, port: int
) -> None:
    """And is no reason to try the same again."""
    file = tmp_path / "conf"
    file.write_text(f"apiPort: {port}\ntlsCipherSuites: NONE_SUCH\n")
    configuration = Configuration(ControllerConfig, accept_controller, file, tmp_path / "kept")
    frame = start_frame(*configuration.now.same_for_the_program, places(tmp_path))
    with pytest.raises(Invalid, match=r"^tlsCipherSuites: 'NONE_SUCH' is not a cipher suite"):
        await ApiServerProcess(Facts()).start(frame)


def answers(port: int) -> bool:
    try:
        return get(port, "/healthz") == (200, "ok")
    except OSError:
        return False


def test_controller_ends_with_one_line_when_the_process_that_serves_dies(tmp_path: Path, port: int) -> None:
    program = started(tmp_path, f"apiPort: {port}\n")
    try:
        deadline = time.monotonic() + 60
        while not answers(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        (child,) = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
        os.kill(int(child), signal.SIGKILL)
        _, err = program.communicate(timeout=60)
    finally:
        program.kill()
        program.wait()
    assert program.returncode == 1
    assert err.splitlines()[-1] == "antrea-controller: the serving process has ended with status -9"


def test_controller_the_process_that_serves_ends_with_the_one_that_computes(
    tmp_path: Path, port: int
) -> None:
    program = started(tmp_path, f"apiPort: {port}\n")
    try:
        deadline = time.monotonic() + 60
        while not answers(port) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert answers(port)
    finally:
        program.kill()
        # the child holds the other end of this pipe
        program.communicate(timeout=60)
    assert not answers(port)


def test_controller_command_line_refuses_in_one_line(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--config", str(tmp_path / "absent.conf")])
    assert (result.exit_code, result.stderr) == (
        1,
        f"antrea-controller: {tmp_path}/absent.conf: cannot be read: No such file or directory\n",
    )


async def test_who_connects_while_the_front_is_replaced_waits_for_the_next_one(
    tmp_path: Path, port: int
) -> None:
    (tmp_path / "conf").write_text(f"apiPort: {port}\n")
    file, kept = tmp_path / "conf", tmp_path / "kept"
    configuration = Configuration(ControllerConfig, accept_controller, file, kept)
    frame, listener = start_frame(*configuration.now.same_for_the_program, places(tmp_path)), SharedListener()
    first, second = ApiServerProcess(Facts(), listener), ApiServerProcess(Facts(), listener)
    await first.start(frame)
    hearing = asyncio.create_task(first.run())
    assert await asyncio.to_thread(get, port, "/livez") == (200, "ok")
    hearing.cancel()
    await first.stop()
    asking = asyncio.create_task(asyncio.to_thread(get, port, "/livez"))
    await second.start(frame)
    hearing = asyncio.create_task(second.run())
    try:
        assert await asking == (200, "ok")
    finally:
        hearing.cancel()
        await second.stop()
        listener.close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.to_thread(get, port, "/livez")
