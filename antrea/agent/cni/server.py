"""Server of the CNI socket: one line of JSON in, one answer out, every wait bounded.

A call continues after its caller has gone: the DEL that a runtime sends for a failed ADD waits for its turn and then finds
everything. An agent that stops leaves unfinished calls as a kill would; see `pod_interface`.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from antrea.agent.cni.check import check
from antrea.agent.cni.pod_interface import PodInterfaces
from antrea.agent.cni.request import Call, Failed, read_call
from antrea.agent.cni.response import failure, result_of, success
from antrea.apis.cni import Code, Result
from antrea.errors import Invalid, Unavailable
from antrea.outside.http.liveness_probe import LivenessProbe
from antrea.outside.log import klog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator

    from antrea.agent.cni.context import CniContext
    from antrea.facts.node import ThisNode

log = klog.logger(__name__)

SOCKET = Path("/var/run/antrea/cni.sock")
READY_SECONDS = 30.0
"""# parity: pkg/agent/cniserver/server.go networkReadyTimeout"""
LOCK_SECONDS = 20.0
REQUEST_SECONDS = 10.0
CALL_SECONDS = 180.0
"""More than all waits of one call together; the runtime has given up on an older call."""
REQUEST_LIMIT = 8 << 20
"""Maximum number of bytes of a request; the plugin reads 1 MiB of stdin, of which every byte may become six."""
TIMEOUT_SECONDS = 10.0
"""Maximum delay of a response to a probe: all steps of the agent are shorter."""


class _Queue:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.members = 0


class ContainerLocks:
    """One lock per container, kept for as long as a call holds or awaits it."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._queues: dict[str, _Queue] = {}

    @property
    def busy(self) -> frozenset[str]:
        """Containers for which a call is under way or waits."""
        return frozenset(self._queues)

    @contextlib.asynccontextmanager
    async def hold(self, container_id: str) -> AsyncIterator[None]:
        """Hold the lock of this container. Raises Failed ("try again later") if others take longer than `patience` seconds."""
        queue = self._queues.setdefault(container_id, _Queue())
        queue.members += 1
        try:
            try:
                async with asyncio.timeout(self._patience):
                    await queue.lock.acquire()
            except TimeoutError:
                raise Failed(
                    Code.TRY_AGAIN_LATER, f"Another call for container {container_id} is still under way"
                ) from None
            try:
                yield
            finally:
                queue.lock.release()
        finally:
            queue.members -= 1
            if not queue.members:
                del self._queues[container_id]


@contextlib.contextmanager
def exclusive_unix_listener(path: Path) -> Iterator[socket.socket]:
    """Bind a socket to `path`, for root only; a lock beside it distinguishes a stale socket file from that of a running agent.

    Raises Unavailable if another agent of this Node serves it, Invalid if no process could.
    """
    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            stack.callback(os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            path.chmod(0o600)
        except BlockingIOError as error:
            raise Unavailable(f"CNI socket {path}: another antrea-agent of this Node serves it") from error
        except OSError as error:
            raise Invalid("cniSocket", f"cannot listen on {path}: {error.strerror or error}") from error
        stack.callback(path.unlink, missing_ok=True)
        yield listener


async def probe(path: Path, patience: float = TIMEOUT_SECONDS) -> None:
    """Connect as a plugin does, and send nothing. Raises Unavailable if the server does not close the connection in `patience` seconds."""
    try:
        async with asyncio.timeout(patience):
            reader, writer = await asyncio.open_unix_connection(str(path))
            try:
                writer.write_eof()
                await reader.read()
            finally:
                writer.close()
    except TimeoutError:
        raise Unavailable(f"{path} has not answered for {patience:g} s") from None
    except OSError as error:
        raise Unavailable(f"{path}: {error.strerror or error}") from error


class CniServer:
    """Server for the CNI plugin. ADD waits for `network_ready`, which is to be set after `reconcile`."""

    def __init__(
        self,
        context: CniContext,
        network_ready: asyncio.Event,
        path: Path = SOCKET,
        *,
        waits_for: Callable[[], str] = str,
        ready_seconds: float = READY_SECONDS,
    ) -> None:
        """`waits_for` returns what `network_ready` waits for; empty if that is unknown."""
        self._context = context
        self._waits_for = waits_for
        self._ready = network_ready
        self._path = path
        self._patience = ready_seconds
        self._pods = PodInterfaces(context)
        self._locks = ContainerLocks(LOCK_SECONDS)
        self._serving: dict[asyncio.Task[None], float] = {}
        """Arrival time of each call."""
        self._liveness = LivenessProbe("the CNI socket", partial(probe, path))

    @property
    def trouble(self) -> str:
        """Why plugins get no answer; empty while they do."""
        now = asyncio.get_running_loop().time()
        stuck = [now - came for came in self._serving.values() if now - came > CALL_SECONDS]
        if stuck:
            return f"{len(stuck)} CNI calls are not answered, the oldest for {max(stuck):.0f} s"
        return self._liveness.trouble

    async def run(self) -> None:
        """Serve until cancelled.

        Raises Unavailable if another agent of this Node serves this socket, Invalid if no process could.
        """
        with exclusive_unix_listener(self._path) as listener:
            server = await asyncio.start_unix_server(self._accept, sock=listener, limit=REQUEST_LIMIT)
            log.info("CNI server is listening", socket=self._path)
            probing = asyncio.create_task(self._liveness.run(), name="liveness probe of the CNI socket")
            try:
                # serve_forever() would wait for the calls in progress before it ends, from Python 3.12 on
                await asyncio.Event().wait()
            finally:
                probing.cancel()
                server.close()
                for task in self._serving:
                    task.cancel()
                await asyncio.gather(*self._serving, return_exceptions=True)
                await self._pods.close()

    async def reconcile(self, pods: Collection[str] | None) -> None:
        """Remove interfaces of Pods of this Node that are gone.

        `pods` are those with a network of their own, "namespace/name"; None is an incomplete list, for which nothing is
        removed. May be called at any time: interfaces that this process added stay. A failed removal is logged, and retried by
        the next reconcile or DEL.
        """
        if pods is None:
            return
        try:
            await self._pods.reconcile(pods, lambda: self._locks.busy)
        except Failed as error:
            log.error("Failed to clean up after deleted Pods", error=error)

    async def answer(self, line: bytes) -> bytes:
        """Answer one request."""
        try:
            call = read_call(line)
        except Failed as error:
            return _refusal(error, {})
        fields = {"command": call.command, "container": call.container_id, "pod": call.pod}
        try:
            result = await self._do(call)
        except Failed as error:
            return _refusal(error.in_version(call.version), fields)
        except Unavailable as error:
            later = Failed(Code.TRY_AGAIN_LATER, f"Not available now: {error.what}")
            return _refusal(later.in_version(call.version), fields)
        except Exception as error:
            logging.getLogger(__name__).exception("Failed to handle a CNI call", extra={"fields": fields})
            return failure(Failed(Code.UNKNOWN, f"Unexpected error in antrea-agent: {error!r}").error)
        log.info("Handled a CNI call", **fields)
        return success(result)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            self._serving[task] = asyncio.get_running_loop().time()
            task.add_done_callback(self._serving.pop)
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                line = await reader.readline()
            if not line:
                return
            writer.write(await self.answer(line))
            await writer.drain()
        except (ValueError, TimeoutError) as error:
            log.warning("Dropped an incomplete CNI request", err=str(error))
        except ConnectionError:
            log.warning("The CNI plugin disconnected before the response")
        finally:
            writer.close()

    async def _do(self, call: Call) -> Result | None:
        match call.command:
            case "STATUS":
                await self._status()
            case "GC":
                await self._keep_only_valid(call)
            case "ADD":
                node = await self._network()
                async with self._locks.hold(call.container_id):
                    return result_of(call, await self._pods.add(call, node))
            case "DEL":
                async with self._locks.hold(call.container_id):
                    await self._pods.delete(call)
            case _:
                async with self._locks.hold(call.container_id):
                    await check(self._context, call)
        return None

    async def _network(self) -> ThisNode:
        try:
            async with asyncio.timeout(self._patience):
                await self._ready.wait()
        except TimeoutError:
            late = f"The network of this Node is not ready after {self._patience:g} s"
            missing = self._waits_for()
            why = f"{late}: it waits for {missing}" if missing else late
            raise Failed(Code.TRY_AGAIN_LATER, why) from None
        node = self._context.node()
        if node is None or not node.pod_cidrs:
            raise Failed(
                Code.TRY_AGAIN_LATER, "This Node has no podCIDR yet, so its Pods cannot get addresses"
            )
        return node

    async def _keep_only_valid(self, call: Call) -> None:
        attachments = call.config.valid_attachments
        if attachments is None:
            raise Failed(Code.INVALID_NETWORK_CONFIG, "GC needs cni.dev/valid-attachments")
        valid = {(attachment.container_id, attachment.if_name) for attachment in attachments}
        await self._pods.keep_only(valid, lambda: self._locks.busy)

    async def _status(self) -> None:
        node = self._context.node()
        if not self._ready.is_set() or node is None or not node.pod_cidrs:
            raise Failed(Code.NOT_AVAILABLE, "The network of this Node is not ready")
        try:
            await self._context.ports.check()
        except Unavailable as error:
            raise Failed(Code.LIMITED_CONNECTIVITY, f"Not available now: {error.what}") from error


def _refusal(failed: Failed, fields: dict[str, str]) -> bytes:
    error = failed.error
    log.error("Refused a CNI call", error=failed, code=int(error.code), **fields)
    return failure(error)
