"""The images that a lab needs besides ours, made from this machine's programs: no registry is asked."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from antrea.errors import Unavailable
from antrea.lab import cache, oci
from antrea.lab.images import AGNHOST, COREDNS, PAUSE
from antrea.lab.oci import Image
from antrea.lab.rootfs import Tree
from antrea.lab.step import bound

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from antrea.lab.artifacts import Binaries
    from antrea.lab.step import Progress

PAUSE_SOURCE = Path(__file__).parent / "pause.c"
# place in the test image -> the machine's program and the Debian package that has it
TOOLS = {
    "usr/bin/nc": ("nc.openbsd", "netcat-openbsd"),
    "usr/bin/curl": ("curl", "curl"),
    "usr/bin/dig": ("dig", "bind9-dnsutils"),
    "usr/bin/nslookup": ("nslookup", "bind9-dnsutils"),
    "usr/bin/ping": ("ping", "iputils-ping"),
    "usr/bin/ss": ("ss", "iproute2"),
    "usr/sbin/ip": ("ip", "iproute2"),
    "bin/bash": ("bash", "bash"),
}
NAME_SERVICE = ("libnss_dns.so.2", "libnss_files.so.2", "libresolv.so.2")  # loaded at run time, unseen by ldd
PASSWD = b"""root:x:0:0:root:/root:/bin/sh
nobody:x:65534:65534::/:/bin/false
user-defined-in-image:x:1000:1000::/home:/bin/sh
"""
GROUP = b"""root:x:0:
nobody:x:65534:
user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
"""


def standard(binaries: Binaries, progress: Progress) -> list[Image]:
    """The images of every lab: the sandbox, agnhost and the cluster's DNS server."""
    made = [pause(), agnhost(binaries.agnhost), coredns(binaries.coredns)]
    progress(f"images ready: {' '.join(name for image in made for name in image.names)}")
    return made


def product(progress: Progress) -> Image:
    """Our own image, built by build/image.py of this checkout; raises `Unavailable` with its last words."""
    builder = Path(__file__).parents[2] / "build/image.py"
    if not builder.exists():
        raise Unavailable("our image: it is built from a checkout, and this is an installed package")
    command = [sys.executable, str(builder), "--describe"]
    with subprocess.Popen(
        bound(command), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as building:
        assert building.stdout is not None
        assert building.stderr is not None
        said = [line.rstrip("\n") for line in _each(building.stderr, progress)]
        answer = building.stdout.read()
    if building.returncode:
        raise Unavailable(f"our image was not built:\n{chr(10).join(said[-20:])}")
    return decode(answer)


def encode(image: Image) -> str:
    """An image as JSON: its layers stay where they are, in the cache."""
    return msgspec.json.encode(image, enc_hook=str).decode()


def decode(text: str) -> Image:
    """The image that `encode` wrote."""
    return msgspec.json.decode(text, type=Image, dec_hook=lambda kind, value: kind(value))


def pause() -> Image:
    """The process that holds a Pod's namespaces, a static C program."""

    def compile_(part: Path) -> None:
        gcc = _found("gcc", "gcc and libc6-dev")
        to = (part / "pause", PAUSE_SOURCE)
        subprocess.run([gcc, "-Os", "-static", "-s", "-Wall", "-Werror", "-o", *to], check=True)

    program = cache.made("pause", cache.digest(PAUSE_SOURCE), compile_) / "pause"
    tree = Tree()
    tree.file("pause", program, 0o755)
    return _one_layer(PAUSE, tree, ("/pause",))


def coredns(program: Path) -> Image:
    """CoreDNS alone, as its own image has it."""
    tree = Tree()
    tree.file("coredns", program, 0o755)
    return _one_layer(COREDNS, tree, ("/coredns",))


def agnhost(program: Path) -> Image:
    """The e2e test image: agnhost (serves, connects, tells its name) with busybox and the usual network tools."""
    tree = Tree()
    for name in ("dev", "etc", "home", "proc", "root", "sys", "usr/sbin", "var/run"):
        tree.folder(name)
    for name in ("tmp", "uploads"):
        tree.folder(name, 0o1777)
    busybox = _found("busybox", "busybox-static")
    tree.file("bin/busybox", busybox, 0o755)
    for applet in subprocess.run(
        [busybox, "--list"], check=True, capture_output=True, text=True
    ).stdout.split():
        if applet not in {"busybox", *(Path(tool).name for tool in TOOLS)}:
            tree.link(f"bin/{applet}", "busybox")
    for place, (tool, package) in TOOLS.items():
        tree.program(place, _found(tool, package))
    # busybox's own sh would run its applets before anything in PATH, and tests want the real `nc -v`
    tree.link("bin/sh", "bash")
    libc = next(path for path in tree.entries if path.endswith("/libc.so.6"))
    for library in NAME_SERVICE:
        path = Path("/", libc).with_name(library)
        tree.file(str(path), path.resolve(), 0o755)
    tree.file("etc/nsswitch.conf", b"hosts: files dns\n")
    tree.file("etc/passwd", PASSWD)
    tree.file("etc/group", GROUP)
    tree.file("agnhost", program, 0o755)
    tree.link("agnhost-2", "agnhost")
    return _one_layer(AGNHOST, tree, ("/agnhost",), ("pause",))


def _each(lines: Iterable[str], progress: Progress) -> Iterator[str]:
    for line in lines:
        progress(line.rstrip("\n"))
        yield line


def _one_layer(name: str, tree: Tree, entrypoint: tuple[str, ...], cmd: tuple[str, ...] = ()) -> Image:
    return Image((name,), (oci.layer(tree.key(), tree.write),), entrypoint, cmd)


def _found(program: str, package: str) -> Path:
    path = shutil.which(program, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if path is None:
        raise Unavailable(
            f"{program} is not on this machine: run scripts/bootstrap, or apt-get install {package}"
        )
    return Path(path)
