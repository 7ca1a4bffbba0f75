"""Who answers ARP requests for an address: `python3 arp_answers.py ADDRESS` prints the MAC addresses of all, each once."""

from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import time

TIMES, SECONDS = 5, 0.4
ARP, REQUEST, REPLY = 0x0806, 1, 2


def answers(address: str) -> list[str]:
    """On the network of this namespace that has the address, to requests from its own."""
    (route,) = json.loads(
        subprocess.run(["ip", "-j", "route", "get", address], capture_output=True, check=True).stdout
    )
    found: set[str] = set()
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ARP)) as link:
        link.bind((route["dev"], ARP))
        mac, own, wanted = (
            link.getsockname()[4],
            socket.inet_aton(route["prefsrc"]),
            socket.inet_aton(address),
        )
        head = b"\xff" * 6 + mac + struct.pack("!HHHBBH", ARP, 1, 0x0800, 6, 4, REQUEST)
        for _ in range(TIMES):
            link.send(head + mac + own + bytes(6) + wanted)
            end = time.monotonic() + SECONDS
            while (left := end - time.monotonic()) > 0:
                link.settimeout(left)
                try:
                    frame = link.recv(64)
                except TimeoutError:
                    break
                operation, sender, claimed = struct.unpack("!H6s4s", frame[20:32])
                if operation == REPLY and claimed == wanted:
                    found.add(sender.hex(":"))
    return sorted(found)


if __name__ == "__main__":
    print(json.dumps(answers(sys.argv[1])))
