"""A command under a stock distribution kernel: QEMU without KVM, this machine's files as its root.

The machine's kernel may lack openvswitch, geneve, 8021q, dummy, ip_vs, wireguard. Debian's stock kernel has them all, so the
vm tier boots it once on this very root directory (9p) and runs its tests there. The guest's /run and /tmp are its own; the rest
is the machine's, writable: run only what keeps to its own directories. Python starts about 25 times slower than outside.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from lab import namespace
from lab.process import TIME_FACTOR

if TYPE_CHECKING:
    from collections.abc import Iterable

BOOT_MODULES = [
    "virtio_ring",
    "virtio",
    "virtio_pci_legacy_dev",
    "virtio_pci_modern_dev",
    "virtio_pci",
    "netfs",
    "fscache",
    "9pnet",
    "9pnet_virtio",
    "9p",
]

INIT = """#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /proc /dev /mnt
$b mount -t proc proc /proc
$b mount -t devtmpfs dev /dev
for m in {modules}; do [ -f /mods/$m.ko ] && $b insmod /mods/$m.ko; done
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=1048576,cache=loose root /mnt
for a in $($b cat /proc/cmdline); do case $a in stage2=*) s=${{a#stage2=}};; esac; done
exec $b switch_root /mnt $s
"""

PATH = "/run/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""In the guest."""
# ovsdb-server truncates its temporary files, which 9p cannot: /tmp and /run are tmpfs. The kernel's modules are not in
# the machine's /lib/modules and nothing shall be written there: modprobe, the kernel's own calls of it too, is told where.
# The kernel also asks for a module of the name of each device that is missing, and ovs-vswitchd asks for br-int all the time.
STAGE2 = """#!/bin/bash
export PATH={path} HOME=/root IN_VM=1
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /tmp
mount -t devtmpfs dev /dev; mkdir -p /dev/pts /run/netns /run/lock /run/modules
mount -t devpts devpts /dev/pts; mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
mkdir -p /run/bin; printf '#!/bin/sh\\ncase "$3" in netdev-*|br-*|antrea-*) exit 1;; esac\\nexec /sbin/modprobe -d %s "$@"\\n' {kernel} >/run/bin/modprobe; chmod +x /run/bin/modprobe
echo /run/bin/modprobe >/proc/sys/kernel/modprobe
mkdir -p /run/root; mount --bind / /run/root
for hidden in {hidden}; do mkdir -p "$hidden" && mount --bind "/run/root$hidden" "$hidden"; done
if cd {cwd}; then {command}; echo $? >{status}; else echo "the guest does not see the working directory" {cwd}; fi
sync
echo o >/proc/sysrq-trigger
sleep 60
"""


OWN = ("/tmp", "/run")
"""Directories of the guest's own; what is needed of the machine's below them is mounted there."""
KERNEL_LINE = re.compile(r"^\[ *\d+\.\d+\] ")
CPU = "max,-la57,-erms,-fsrm,-avx,-avx2"
"""Emulated, string operations on wide registers cost 40 % of all time: the C library takes plain ones where it has to."""
CABLE = ("-netdev", "user,id=host", "-device", "virtio-net-pci,netdev=host,romfile=")
TAP = "tap,id=host,ifname={},script=no,downscript=no"
NO_CABLE = ("-net", "none")
HOST, CARD = "10.0.2.2", "10.0.2.15/24"
"""Addresses in QEMU's user network: the namespace that QEMU runs in, and what the guest's card takes."""


class Kernel(msgspec.Struct, frozen=True):
    """A stock kernel, unpacked, and the initial ramdisk that mounts the machine's root."""

    folder: Path
    image: Path
    initrd: Path


def _run(*argv: str, cwd: Path | None = None, stdin: bytes | None = None) -> bytes:
    done = subprocess.run(argv, cwd=cwd, input=stdin, capture_output=True, check=False)
    if done.returncode:
        raise Unavailable(f"{shlex.join(argv)}: {done.stderr.decode(errors='replace').strip()[-500:]}")
    return done.stdout


def kernel(cache: Path) -> Kernel:
    """Download and unpack Debian's current amd64 kernel once; the result is kept under `cache` by package name.

    Raises Unavailable when apt cannot deliver it.
    """
    depends = _run("apt-cache", "depends", "linux-image-amd64").decode()
    match = re.search(r"Depends: (linux-image-\d\S+)", depends)
    if match is None:
        raise Unavailable("apt knows no linux-image-amd64: run apt-get update")
    key = hashlib.sha256("\n".join((match[1], INIT, *BOOT_MODULES)).encode()).hexdigest()[:12]
    folder = cache / f"vm-{match[1]}-{key}"
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="vm-", dir=cache))
        try:
            _unpack(match[1], fresh)
            fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return Kernel(folder, next((folder / "boot").glob("vmlinuz-*")), folder / "initrd.gz")


def _unpack(package: str, folder: Path) -> None:
    _run("apt-get", "download", package, cwd=folder)
    archive = next(folder.glob("*.deb"))
    _run("dpkg", "-x", str(archive), str(folder))
    archive.unlink()
    version = next((folder / "boot").glob("vmlinuz-*")).name.removeprefix("vmlinuz-")
    _run("depmod", "-b", str(folder), version)
    ramdisk = folder / "ramdisk"
    for part in ("bin", "mods"):
        (ramdisk / part).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "/bin/busybox", ramdisk / "bin/busybox")
    for name in BOOT_MODULES:
        for module in (folder / "lib/modules").rglob(f"{name}.ko"):
            shutil.copy(module, ramdisk / "mods")
    init = ramdisk / "init"
    init.write_text(INIT.format(modules=" ".join(BOOT_MODULES)))
    init.chmod(0o755)
    names = "\n".join(str(p.relative_to(ramdisk)) for p in sorted(ramdisk.rglob("*")))
    packed = _run("cpio", "-o", "-H", "newc", "--quiet", cwd=ramdisk, stdin=names.encode())
    (folder / "initrd.gz").write_bytes(_run("gzip", "-1", "-c", stdin=packed))


def hidden(paths: Iterable[Path]) -> list[Path]:
    """Return the paths that the guest's own directories hide, without those below another of them."""
    hidden_paths: list[Path] = []
    for path in sorted({path.resolve() for path in paths}):
        has_own = any(path.is_relative_to(place) for place in OWN)
        if has_own and not any(path.is_relative_to(other) for other in hidden_paths):
            hidden_paths.append(path)
    return hidden_paths


def readable(console: str) -> str:
    """The end of what the machine wrote, without the kernel's lines, which only repeat where it stopped."""
    lines = [line for line in console.splitlines() if line.strip()]
    written = [line for line in lines if not KERNEL_LINE.match(line)]
    return "\n".join((written or lines)[-40:])


def cable(netns: Path | None, tap: str) -> tuple[str, ...]:
    """QEMU's options for the network card."""
    if netns is None:
        return NO_CABLE
    return (CABLE[0], TAP.format(tap), *CABLE[2:]) if tap else CABLE


def _machine(stock: Kernel, memory: str, stage2: Path) -> list[str]:
    return [
        *("qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", CPU, "-m", memory),
        *("-smp", str(os.cpu_count() or 1), "-kernel", str(stock.image), "-initrd", str(stock.initrd)),
        *("-append", f"console=ttyS0 quiet panic=-1 mitigations=off stage2={stage2}"),
        *("-nographic", "-no-reboot"),
        *("-virtfs", "local,path=/,mount_tag=root,security_model=none,multidevs=remap"),
    ]


def run(
    stock: Kernel,
    argv: list[str],
    *,
    timeout: float,
    memory: str = "3G",
    netns: Path | None = None,
    tap: str = "",
    disk: Path | None = None,
    options: Iterable[str] = (),
) -> tuple[int, str]:
    """Boot, run `argv` as root in the current directory, power off. Returns its exit status and the console's text.

    `timeout` is in seconds, and multiplied by TIME_FACTOR; past it the machine is ended and Unavailable raised. With `netns`, the file of a network
    namespace, the machine has one virtio network card, behind which `HOST` is the loopback of that namespace; with `tap`, the
    other end of its cable is the interface of that name there. `disk` is a file that the machine has as /dev/vda; `options` go to QEMU.
    """
    with tempfile.TemporaryDirectory(prefix="antrea-vm-", dir="/var/tmp") as folder:
        stage2, status = Path(folder, "stage2"), Path(folder, "status")
        needed = (Path.cwd(), Path(sys.prefix), Path(sys.base_prefix), stock.folder)
        stage2.write_text(
            STAGE2.format(
                path=PATH,
                kernel=shlex.quote(str(stock.folder)),
                cwd=shlex.quote(str(Path.cwd())),
                hidden=shlex.join(map(str, hidden(needed))),
                command=shlex.join(argv),
                status=shlex.quote(str(status)),
            )
        )
        stage2.chmod(0o755)
        machine = [*_machine(stock, memory, stage2), *cable(netns, tap), *options]
        machine += ["-drive", f"file={disk},format=raw,if=virtio"] if disk else []
        try:
            done = subprocess.run(
                namespace.inside(netns, machine) if netns else machine,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout * TIME_FACTOR,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            console = (error.stdout or b"").decode(errors="replace")
            raise Unavailable(
                f"the virtual machine was not done after {timeout * TIME_FACTOR:.0f} s:\n{readable(console)}"
            ) from error
        console = done.stdout.decode(errors="replace")
        if not status.exists():
            raise Unavailable(f"the virtual machine ended before its command:\n{readable(console)}")
        return int(status.read_text()), console
