"""FRR as a router that speaks BGP and BFD with the Nodes: programs of Debian 13, in the network of a machine of a lab."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from build_program import load_build_program

from lab import namespace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lab.cluster import Lab

ALONE = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child")
"""Its mounts and processes go with the first of them."""
ROOM = """
set -e
root=$1 own=$2
for dir in run var/lib/frr var/tmp; do mkdir -p "$root/$dir"; mount -t tmpfs frr "$root/$dir"; done
mount --rbind /dev "$root/dev"; mount -t proc proc "$root/proc"
mkdir "$root/run/frr"; cp "$own/bgpd.conf" "$own/bfdd.conf" "$root/run/frr/"
exec chroot "$root" sh -c '
  chown -R frr:frr /run/frr /var/lib/frr
  PATH=/usr/sbin:/usr/bin:/sbin:/bin
  /usr/lib/frr/zebra --log stdout &
  while [ ! -S /run/frr/zserv.api ]; do sleep 0.05; done
  /usr/lib/frr/bfdd -f /run/frr/bfdd.conf --log stdout -P 0 &
  /usr/lib/frr/bgpd -f /run/frr/bgpd.conf --log stdout -P 0 &
  wait'
"""
"""Arguments: the root of Debian, the folder with its configuration. The shell stays: bgpd gives up root, and with it what ends it."""


BFD = "bfd\n profile fast\n  receive-interval 100\n  transmit-interval 100\n exit\nexit\n"
"""Sessions with this profile end after 300 ms without a packet."""


def configuration(own: int, router: str, peers: Mapping[str, int], *, bfd: bool = False) -> str:
    """Of a router of an AS that takes routes of peers of another, several ways to one network; `peers` are addresses and AS numbers."""
    watched = " neighbor {0} bfd\n neighbor {0} bfd profile fast\n" if bfd else ""
    neighbours = "".join(
        f" neighbor {peer} remote-as {number}\n neighbor {peer} timers connect 1\n{watched.format(peer)}"
        for peer, number in peers.items()
    )
    return (
        f"frr defaults datacenter\nrouter bgp {own}\n bgp router-id {router}\n no bgp ebgp-requires-policy\n{neighbours}"
        " address-family ipv4 unicast\n  maximum-paths 8\n exit-address-family\n"
    )


@contextlib.contextmanager
def routing(lab: Lab, machine: str, text: str) -> Iterator[None]:
    """For as long as the block lasts; a failure has its last lines."""
    root = load_build_program("debian_root").root(print, "frr")
    with tempfile.TemporaryDirectory(prefix="frr-") as place:
        Path(place, "bgpd.conf").write_text(text)
        Path(place, "bfdd.conf").write_text(BFD)
        words = [*ALONE, "sh", "-c", ROOM, "frr", str(root), place]
        command = namespace.inside(namespace.path(lab.record, machine), words)
        log = Path(place, "log")
        with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
            try:
                yield
                assert process.poll() is None
            except BaseException as error:
                error.add_note(f"FRR: {log.read_text()[-2000:]}")
                raise
            finally:
                process.kill()
