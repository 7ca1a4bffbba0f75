"""The one thread that steps into a container's network namespace, and what the CNI server has done in there.

setns(2) moves a thread, not a process, so all of it happens in one dedicated worker; a netlink socket belongs for ever
to the namespace it was opened in, so work opens its own. A worker that cannot come back is never used again.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from antrea.errors import Refused, Unavailable
from antrea.outside.netlink import pod_veth
from antrea.outside.netlink.message import IFF_UP
from antrea.outside.netlink.pod_veth import PodVeth, host_interface_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["NetnsWorker", "PodVeth", "host_interface_name"]

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class NetnsWorker:
    """Runs functions inside network namespaces, one after the other. `close` it when done."""

    def __init__(self) -> None:
        self._thread = _one_thread()

    async def run(self, netns_path: str, work: Callable[[], T]) -> T:
        """Call `work` in a thread that is in that namespace. Raises Unavailable if there is no such namespace."""
        return await self._at_home(lambda: self._inside(netns_path, work))

    async def create_pod_veth(self, veth: PodVeth) -> tuple[str, int]:
        """Make the pair, configure both ends, and return the Pod's MAC and the index of the host's end.

        An existing pair of that host name is replaced. After a failure there is none. Raises Unavailable if
        the namespace is gone, Refused with the kernel's words otherwise.
        """
        return await self._at_home(lambda: self._create(veth))

    async def check_pod_veth(self, veth: PodVeth) -> None:
        """Raise Refused with a sentence on the first difference between `veth` and what stands (CNI CHECK)."""
        await self._at_home(lambda: self._check(veth))

    def close(self) -> None:
        """Wait for the work under way and end the thread."""
        self._thread.shutdown()

    async def _at_home(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _inside(self, netns_path: str, work: Callable[[], T]) -> T:
        with _opened(netns_path) as there, _opened("/proc/thread-self/ns/net") as home:
            try:
                _setns(there)
            except OSError as error:
                raise Unavailable(f"{netns_path} is not a network namespace: {error.strerror}") from error
            try:
                return work()
            finally:
                self._come_back(home)

    def _come_back(self, home: int) -> None:
        try:
            _setns(home)
        except OSError:
            lost, self._thread = self._thread, _one_thread()
            lost.shutdown(wait=False)
            raise

    def _create(self, veth: PodVeth) -> tuple[str, int]:
        mac = veth.mac or pod_veth.random_mac()
        with _opened(veth.netns_path) as there:
            index = pod_veth.make(veth, mac, there)
        try:
            self._inside(veth.netns_path, lambda: pod_veth.configure_pod_end(veth))
        except BaseException:
            pod_veth.delete(veth.host_name)
            raise
        return mac, index

    def _check(self, veth: PodVeth) -> None:
        host = pod_veth.host_end(veth.host_name)
        if host is None or not host.flags & IFF_UP:
            raise Refused(
                [veth], f"interface {veth.host_name} is {'down' if host else 'missing'} on the Node"
            )
        if wrong := self._inside(veth.netns_path, lambda: pod_veth.difference(veth, host.index)):
            raise Refused([veth], f"interface {veth.if_name} in {veth.netns_path} {wrong}")


def _one_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="netns")


@contextlib.contextmanager
def _opened(netns_path: str) -> Iterator[int]:
    try:
        namespace = os.open(netns_path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"network namespace {netns_path} cannot be entered: {error.strerror}") from error
    try:
        yield namespace
    finally:
        os.close(namespace)


def _setns(namespace: int) -> None:
    if _libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
