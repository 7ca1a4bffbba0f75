"""Addresses for the Pods of this Node, kept on disk exactly as the CNI plugin host-local keeps them.

A directory holds one file per address (its name is the address, its content the container id, CR LF and the interface
name), one `last_reserved_ip.<n>` per range (n counts the Pod CIDRs) and `lock`, which is flock'd for every step. So a
Node can move between host-local and this module, both ways, without a Pod losing its address.

Source: containernetworking/plugins, plugins/ipam/host-local/backend/{disk,allocator}.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import ipaddress
import os
import stat
import time
from collections.abc import Callable, Collection, Iterator, Sequence  # noqa: TC003 (msgspec reads annotations)
from pathlib import Path
from typing import TypeAlias, TypeVar

import msgspec

from antrea.errors import Invalid, Unavailable
from antrea.outside.log import klog

log = klog.logger(__name__)

DIRECTORY = Path("/var/lib/cni/networks/antrea")

LOCK_SECONDS = 10.0
"""For which a process may hold the lock; a step takes milliseconds."""
_RETRY_SECONDS = 0.05

R = TypeVar("R")
Ip: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_TICK = 100_000_000
"""Nanoseconds, well above the step in which a file system's clock goes."""
_MAX_BYTES = 4096
"""Bytes of a file of ours or host-local's: a container id and a name."""
_UNFINISHED = ".unfinished"  # not an address, so neither side takes it for a reservation


class Allocation(msgspec.Struct, frozen=True):
    """Addresses of one Pod interface: an address and a gateway per Pod CIDR, in the order of the Pod CIDRs."""

    addresses: tuple[str, ...]
    """With prefix length: ("10.244.1.5/24", "fd00:10:244:1::5/64")."""
    gateways: tuple[str, ...]
    """Without: ("10.244.1.1", "fd00:10:244:1::1")."""

    @property
    def ips(self) -> tuple[str, ...]:
        return tuple(address.split("/")[0] for address in self.addresses)


class _Reservation(msgspec.Struct, frozen=True):
    """An address file as it was read."""

    ip: Ip
    owner: str
    stamp: tuple[int, int]
    """Its inode, and when that changed."""
    settled: bool
    """It was old enough that another change would have got another stamp."""

    @property
    def container(self) -> str:
        return self.owner.split("\n")[0].strip()


class Range:
    """The addresses of one Pod CIDR that Pods can have: not the network, not the gateway, not IPv4's broadcast."""

    def __init__(self, cidr: str) -> None:
        """Raises Invalid if `cidr` is not a network or has no room for a Pod."""
        try:
            self.network = ipaddress.ip_network(cidr, strict=False)
        except ValueError as error:
            raise Invalid("podCIDR", f"{cidr!r} is not a network such as 10.244.1.0/24") from error
        if self.network.max_prefixlen - self.network.prefixlen < 2:
            raise Invalid(
                "podCIDR",
                f"{self.network} is too small to give addresses to Pods; /30 (IPv6: /126) is the least",
            )
        self.gateway: Ip = self.network.network_address + 1
        self.first: Ip = self.network.network_address + 1
        last = self.network.broadcast_address
        self.last: Ip = last - 1 if self.network.version == 4 else last

    @property
    def size(self) -> int:
        """Addresses that Pods can have."""
        return int(self.last) - int(self.first)

    def after(self, last_reserved: Ip | None) -> Iterator[Ip]:
        """Every address once, starting behind `last_reserved` and going round; from the first without it."""
        start = last_reserved if last_reserved is not None and self.holds(last_reserved) else self.last
        count = int(self.last) - int(self.first) + 1
        offset = int(start) - int(self.first)
        for step in range(1, count + 1):
            ip = self.first + (offset + step) % count
            if ip != self.gateway:
                yield ip

    def holds(self, ip: Ip) -> bool:
        return ip.version == self.network.version and int(self.first) <= int(ip) <= int(self.last)


class Ipam:
    """One range per Pod CIDR. Every method does its files in a worker thread, under the lock; the loop never waits for a file.

    Every method raises Unavailable, with nothing done, where another process does not give the lock back in time.
    """

    def __init__(
        self, pod_cidrs: Sequence[str], directory: Path = DIRECTORY, *, lock_seconds: float = LOCK_SECONDS
    ) -> None:
        """Raises Invalid if a Pod CIDR cannot give addresses."""
        self._ranges = tuple(Range(cidr) for cidr in pod_cidrs)
        self._directory = directory
        self._patience = lock_seconds
        self._queue = asyncio.Lock()
        """In front of the lock, so that calls of this process do not poll for each other."""
        self._known: dict[str, _Reservation] = {}

    async def allocate(self, container_id: str, if_name: str) -> Allocation:
        """Reserve an address per range, or return those that this interface already holds (a repeated ADD).

        Raises Unavailable when a range is full or the disk does not take the reservation; then nothing is reserved
        that was not before.
        """
        return await self._alone(functools.partial(self._allocate, container_id, if_name))

    async def release(self, container_id: str, if_name: str) -> tuple[str, ...]:
        """Give back all that this interface holds and return it; nothing held is fine (DEL comes up to three times)."""
        return await self._alone(functools.partial(self._release, container_id, if_name))

    async def held(self, container_id: str, if_name: str) -> tuple[str, ...]:
        """The addresses reserved for this interface, in the order of the ranges (for CNI CHECK)."""
        return await self._alone(functools.partial(self._held, container_id, if_name))

    async def containers(self) -> frozenset[str]:
        """Ids of those that hold addresses; empty for an address whose owner cannot be read."""
        return await self._alone(self._containers)

    async def gc(self, lost: Collection[str]) -> tuple[str, ...]:
        """Give back the addresses of containers in `lost`, of those that `containers` named, and return them.

        # parity: pkg/agent/cniserver/ipam/hostlocal/gc.go GarbageCollectContainerIPs
        """
        return await self._alone(functools.partial(self._gc, frozenset(lost)))

    async def _alone(self, step: Callable[[], R]) -> R:
        # polled: a thread that waits in flock cannot be called back, and there are few of them
        try:
            async with asyncio.timeout(self._patience):
                await self._queue.acquire()
        except TimeoutError:
            raise self._held_too_long() from None
        try:
            deadline = time.monotonic() + self._patience
            while True:
                with contextlib.suppress(BlockingIOError):
                    return await asyncio.to_thread(self._step, step)
                if time.monotonic() > deadline:
                    raise self._held_too_long()
                await asyncio.sleep(_RETRY_SECONDS)
        finally:
            self._queue.release()

    def _held_too_long(self) -> Unavailable:
        return Unavailable(
            f"another process has held the lock {self._directory / 'lock'} of the address reservations for {self._patience:g} s"
        )

    def _step(self, step: Callable[[], R]) -> R:
        """Raises BlockingIOError where another process has the lock."""
        with self._locked():
            return step()

    def _allocate(self, container_id: str, if_name: str) -> Allocation:
        mine = self._find(container_id, if_name)
        fresh: list[Ip] = []
        ips: list[Ip] = []
        try:
            for number, space in enumerate(self._ranges):
                ip = next((ip for ip in mine if space.holds(ip)), None)
                if ip is None:
                    ip = self._reserve(number, owner(container_id, if_name))
                    fresh.append(ip)
                    self._replace(f"last_reserved_ip.{number}", str(ip))
                ips.append(ip)
        except Unavailable:
            for ip in fresh:
                self._remove(ip)
            raise
        return Allocation(
            tuple(f"{ip}/{space.network.prefixlen}" for ip, space in zip(ips, self._ranges, strict=True)),
            tuple(str(space.gateway) for space in self._ranges),
        )

    def _release(self, container_id: str, if_name: str) -> tuple[str, ...]:
        mine = self._find(container_id, if_name)
        for ip in mine:
            self._remove(ip)
        return tuple(str(ip) for ip in mine)

    def _held(self, container_id: str, if_name: str) -> tuple[str, ...]:
        mine = self._find(container_id, if_name)
        return tuple(str(ip) for space in self._ranges for ip in mine if space.holds(ip))

    def _containers(self) -> frozenset[str]:
        return frozenset(reservation.container for reservation in self._reservations())

    def _gc(self, lost: frozenset[str]) -> tuple[str, ...]:
        gone = [reservation.ip for reservation in self._reservations() if reservation.container in lost]
        for ip in gone:
            self._remove(ip)
        return tuple(str(ip) for ip in gone)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        path = self._directory / "lock"
        with self._disk("open", path):
            self._directory.mkdir(parents=True, exist_ok=True)
            lock = os.open(path, os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK, 0o750)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(lock)

    def _reservations(self) -> list[_Reservation]:
        """Every address file, of which those that changed since the last look are read. Call it with the lock held."""
        with self._disk("list", self._directory), os.scandir(self._directory) as entries:
            reservations = [
                self._reservation(entry) for entry in sorted(entries, key=lambda entry: entry.name)
            ]
        standing = list(filter(None, reservations))
        self._known = {str(reservation.ip): reservation for reservation in standing if reservation.settled}
        return standing

    def _reservation(self, entry: os.DirEntry[str]) -> _Reservation | None:
        """None if it is not an address file. One that cannot be read reserves its address for an unknown owner."""
        ip = _address(entry.name)
        if ip is None:
            return None
        try:
            now = entry.stat()
            stamp = (now.st_ino, now.st_ctime_ns)
            known = self._known.get(entry.name)
            if known is not None and known.stamp == stamp:
                return known
            settled = time.time_ns() - now.st_ctime_ns > _TICK
            # not read_text, which would turn CR LF into LF; a name may be that of a pipe, which nobody writes to
            text = _read(entry.path)
        except (OSError, ValueError) as error:
            log.warning(
                "Ignored the owner of an address because its file cannot be read",
                path=entry.path,
                err=str(error),
            )
            return _Reservation(ip, "", (0, 0), settled=False)
        return _Reservation(ip, text.strip(), stamp, settled)

    def _find(self, container_id: str, if_name: str) -> list[Ip]:
        """Addresses of this interface; a file of an old host-local names only the container, and counts if no other does."""
        standing = self._reservations()
        wanted = owner(container_id, if_name)
        exact = [reservation.ip for reservation in standing if reservation.owner == wanted]
        return exact or [
            reservation.ip for reservation in standing if reservation.owner == container_id.strip()
        ]

    def _reserve(self, number: int, content: str) -> Ip:
        space = self._ranges[number]
        for ip in space.after(self._last_reserved(number)):
            path = self._directory / str(ip)
            if os.path.lexists(path):
                continue
            self._replace(path.name, content)
            return ip
        raise Unavailable(f"no free IP address in podCIDR {space.network}: all {space.size} are reserved")

    def _last_reserved(self, number: int) -> Ip | None:
        path = self._directory / f"last_reserved_ip.{number}"
        try:
            return ipaddress.ip_address(_read(path).strip())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning(
                "Started at the first address because the last reserved one cannot be read",
                path=str(path),
                err=str(error),
            )
            return None

    def _replace(self, name: str, content: str) -> None:
        """Write beside, then rename: a full disk or a kill leaves the old state, never half a file."""
        path, unfinished = self._directory / name, self._directory / _UNFINISHED
        # not blocking: under that name may be a pipe that nobody reads
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NONBLOCK
        with self._disk("write", path):
            try:
                file = os.open(unfinished, flags, 0o600)
                with os.fdopen(file, "wb") as writer:
                    writer.write(content.encode())
                unfinished.replace(path)
            except OSError:
                unfinished.unlink(missing_ok=True)
                raise

    def _remove(self, ip: Ip) -> None:
        path = self._directory / str(ip)
        with self._disk("remove", path):
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _disk(self, verb: str, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unavailable(
                f"cannot {verb} {path} of the address reservations: {error.strerror}"
            ) from error


def owner(container_id: str, if_name: str) -> str:
    """The content of an address file."""
    return f"{container_id.strip()}\r\n{if_name}"


def _read(path: str | Path) -> str:
    """A small regular file. Raises OSError, ValueError."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise ValueError("it is not a regular file")
        text = os.read(file, _MAX_BYTES + 1)
    finally:
        os.close(file)
    if len(text) > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes")
    return text.decode()


@functools.lru_cache(maxsize=1024)
def _address(name: str) -> Ip | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
