"""The images that Kubernetes' and upstream's end-to-end suites ask for, made of Debian's tools and agnhost."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec

from image_build import cache, oci
from image_build.oci import Image, Layer
from image_build.rootfs import Tree, machine_program, static_program
from lab import certificates
from lab.images import (
    AGNHOST,
    BUSYBOX,
    JESSIE_DNSUTILS,
    NGINX,
    POLICY_AGNHOST,
    UPSTREAM_AGNHOST,
    UPSTREAM_NGINX,
    UPSTREAM_SFTP,
    UPSTREAM_TOOLBOX,
)

SCTP_SOURCE = Path(__file__).with_name("agnhost_sctp.c")
SFTP_SCRIPT = Path(__file__).with_name("sftp_server.sh")
PROGRAM = "usr/local/bin/agnhost"  # named in agnhost_sctp.c, too
# place in the images -> the machine's program and the Debian package that has it
TOOLS = {
    "usr/bin/nc": ("nc.openbsd", "netcat-openbsd"),
    "usr/bin/curl": ("curl", "curl"),
    "usr/bin/dig": ("dig", "bind9-dnsutils"),
    "usr/bin/nslookup": ("nslookup", "bind9-dnsutils"),
    "usr/bin/ping": ("ping", "iputils-ping"),
    "usr/bin/ss": ("ss", "iproute2"),
    "usr/sbin/arping": ("arping", "arping"),
    "usr/bin/getent": ("getent", "libc-bin"),
    "usr/bin/hostname": ("hostname", "hostname"),
    "usr/bin/iperf3": ("iperf3", "iperf3"),
    "usr/bin/tcpdump": ("tcpdump", "tcpdump"),
    "usr/bin/timeout": ("timeout", "coreutils"),
    "usr/bin/wget": ("wget", "wget"),
    "usr/sbin/ip": ("ip", "iproute2"),
    "bin/bash": ("bash", "bash"),
}
# TestL7NetworkPolicy wants status 0 of a dig whose connections were reset, as that of upstream's image has; Debian's has 9
DIG = b"""#!/bin/sh
text=$(/usr/bin/dig "$@")
status=$?
printf '%s\n' "$text"
case $text in *'connection reset'*) exit 0 ;; esac
exit "$status"
"""
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

SSHD_CONFIG = b"""HostKey /etc/ssh/ssh_host_ed25519_key
HostKey /etc/ssh/ssh_host_rsa_key
UsePAM no
UseDNS no
PidFile none
Subsystem sftp internal-sftp
ForceCommand internal-sftp
ChrootDirectory %h
AllowTcpForwarding no
"""

WEB = ("/agnhost", "netexec", "--http-port=80", "--udp-port=-1")
# busybox's wget, which specs are written for, tries once; busybox-static's own dies where it resolves a name
WGETRC = b"tries = 1\n"


def standard(program: Path, coredns: Path) -> list[Image]:
    """All of them, given agnhost and CoreDNS as programs."""
    image = agnhost(program, coredns)
    shell = Image((JESSIE_DNSUTILS, BUSYBOX), image.layers, ("/bin/sh",))
    return [image, shell, Image((NGINX,), image.layers, WEB), *upstream(image)]


def agnhost(program: Path, coredns: Path) -> Image:
    """Kubernetes' test image: agnhost (serves, connects, answers with its name), a DNS server, busybox, network tools."""
    tree = Tree()
    for name in ("dev", "etc", "home", "proc", "root", "run", "sys", "usr/sbin", "var/run"):
        tree.folder(name)
    for name in ("tmp", "uploads"):
        tree.folder(name, 0o1777)
    _tools(tree)
    tree.file("etc/nsswitch.conf", b"hosts: files dns\n")
    tree.file("etc/wgetrc", WGETRC)
    tree.file("etc/passwd", PASSWD)
    tree.file("etc/group", GROUP)
    for name, content in _certificate().items():
        tree.file(name, content)
    tree.file("coredns", coredns, 0o755)
    tree.file(PROGRAM, program, 0o755)
    tree.link("agnhost", PROGRAM)
    tree.link("agnhost-2", PROGRAM)
    return oci.one_layer(AGNHOST, tree, ("/agnhost",), ("pause",))


def upstream(image: Image) -> list[Image]:
    """The images of upstream's suite, and of network-policy-api's: the same files, where agnhost also serves and connects by
    SCTP on any kernel.
    """
    tree = Tree()
    tree.file("agnhost", static_program(SCTP_SOURCE), 0o755)
    tree.file("usr/local/bin/dig", DIG, 0o755)
    layers = (*image.layers, oci.layer(tree.key(), tree.write))
    return [
        msgspec.structs.replace(image, names=(UPSTREAM_AGNHOST, POLICY_AGNHOST), layers=layers),
        Image((UPSTREAM_TOOLBOX,), layers, ("sleep", "infinity")),
        Image((UPSTREAM_NGINX,), layers, WEB),
        Image((UPSTREAM_SFTP,), (*image.layers, sftp_layer()), ("/usr/local/bin/sftp-server",)),
    ]


def sftp_layer() -> Layer:
    """OpenSSH's server, started as the image of that name is: its argument is the user; and a tar that finds out about compression."""
    tree = Tree()
    tree.program("usr/sbin/sshd", machine_program("sshd", "openssh-server"))
    tree.file("etc/ssh/sshd_config", SSHD_CONFIG)
    tree.file("etc/passwd", PASSWD + b"sshd:x:74:74::/run/sshd:/bin/false\n")
    tree.file("etc/shadow", b"root:*:19000:0:99999:7:::\n", 0o600)
    tree.folder("run/sshd")
    tree.program("usr/local/bin/tar", machine_program("tar", "tar"))
    tree.file("usr/local/bin/sftp-server", SFTP_SCRIPT, 0o755)
    return oci.layer(tree.key(), tree.write)


def _tools(tree: Tree) -> None:
    """Debian's tools, and busybox for what they leave out."""
    busybox = machine_program("busybox", "busybox-static")
    tree.file("bin/busybox", busybox, 0o755)
    applets = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout
    for applet in set(applets.split()) - {"busybox", *(Path(place).name for place in TOOLS)}:
        tree.link(f"bin/{applet}", "busybox")
    for place, (tool, package) in TOOLS.items():
        tree.program(place, machine_program(tool, package))
    # busybox's own sh would run its applets before anything in PATH, and tests want the real `nc -v`
    tree.link("bin/sh", "bash")
    libc = next(path for path in tree.entries if path.endswith("/libc.so.6"))
    for library in NAME_SERVICE:
        path = Path("/", libc).with_name(library)
        tree.file(str(path), path.resolve(), 0o755)


def _certificate() -> dict[str, bytes]:
    """The certificate of agnhost's TLS servers and its key, made once for a cache."""

    def make(part: Path) -> None:
        ca = certificates.authority(part, "ca", "agnhost")
        certificates.issue(ca, "localhost", "localhost", sans=("localhost", "127.0.0.1", "::1"))

    place = cache.made("agnhost-certificate", "localhost", make)
    return {name: (place / name).read_bytes() for name in ("localhost.crt", "localhost.key")}
