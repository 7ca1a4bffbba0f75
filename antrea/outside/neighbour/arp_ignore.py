"""Whether the kernel answers ARP requests for addresses of other devices than the one that they come by.

Source: ip-sysctl (arp_ignore): the maximum of conf/all and conf/{interface} is used. kube-proxy's `ipvs.strictARP` sets the former to 1.
"""

from __future__ import annotations

from pathlib import Path

SETTINGS = Path("/proc/sys/net/ipv4/conf")


def answers_for_all_devices(dev: str) -> bool:
    """Check whether requests that come by `dev` are answered for all devices; false where that is gone. In the network namespace of the calling thread."""
    try:
        return max(int((SETTINGS / name / "arp_ignore").read_text()) for name in ("all", dev)) == 0
    except (OSError, ValueError):
        return False
