"""Programs of the Node that change routes, rules and addresses together in batches, and nftables in one transaction."""

from __future__ import annotations

import json
import subprocess
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Final

from antrea.decoding import guarded

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

SECONDS: Final = 60


def run(*command: str, given: str = "", fine: bool = False) -> str:
    """Run the program and return its output. `fine`: some lines may be of things that are gone, or there. Raises OSError, SubprocessError."""
    done = subprocess.run(
        command, input=given, capture_output=True, text=True, check=not fine, timeout=SECONDS
    )
    return done.stdout


def ip_rows(*arguments: str) -> list[dict[str, Any]]:
    """The rows that `ip -json` prints for these arguments. Raises as `run`; Invalid for output that is not a list of objects."""
    return guarded(f"output of ip {' '.join(arguments)}", rows_of, run("ip", "-json", *arguments))


def rows_of(text: str) -> list[dict[str, Any]]:
    """Objects of a list in JSON, as iproute2 prints them; none for no output. Raises ValueError, RecursionError."""
    rows = json.loads(text or "[]")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("not a list of objects")
    return rows


def run_nft(script: str) -> None:
    """In one transaction. Raises as `run`."""
    run("nft", "-f", "-", given=script)


def address_elements(table: str, addresses: Collection[str]) -> Iterator[str]:
    """Commands of nftables that add them to sets `addresses` and `addresses6` of a table of family inet."""
    for name, version in (("addresses", 4), ("addresses6", 6)):
        if of_version := [address for address in addresses if ip_address(address).version == version]:
            yield f"add element inet {table} {name} {{ {', '.join(of_version)} }}\n"
