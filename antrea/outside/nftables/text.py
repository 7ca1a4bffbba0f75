"""Our nft entries as commands, and back from what `nft list table` prints.

A rule's comment is its name, category and order ("egress-snat 4.100"), a set's is its category: a later start
finds what an earlier one left, and for which purpose.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from antrea.host.nft import (
    ARP_SOURCE_PREFIX,
    HOPS_PREFIX,
    RELAY_PREFIX,
    SHIELD_TABLE,
    SILENCE_PREFIX,
    TABLE,
    TAG_PREFIX,
    NftArpSource,
    NftChain,
    NftCounter,
    NftElement,
    NftHops,
    NftRelay,
    NftRule,
    NftSet,
    NftShield,
    NftSilence,
    NftTag,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_OPENING = re.compile(r"^\t(set|map|chain|counter) (\S+) \{$")
_RULE = re.compile(r'^\t\t(.*) comment "([^"]+) (\d+)\.(-?\d+)"$')
_HOPS = re.compile(r'iifname "([^"]+)" dup to ether saddr map \{(.*?)\} device "([^"]+)"', re.DOTALL)
_ELEMENT = re.compile(r'(?:[^",]|"[^"]*")+')
"""Text up to a comma outside of quotation marks, which names of devices have."""
_ELEMENT_TEXT = re.compile(r'(?:[\w.:/* -]|"[^"\n]*")*', re.ASCII)
"""Addresses, ports, marks, ranges and names of devices: nothing that ends an element or begins another command."""


def fault(entry: Any) -> str:
    """Return why the entry is not given to nft; empty if it is.

    What others write gets here in parsed form only; this is the second lock, as nft would run commands that are in a text.
    """
    texts = (entry.value, entry.data) if isinstance(entry, NftElement) else ()
    if not all(map(_ELEMENT_TEXT.fullmatch, texts)):
        return "an element has characters that are of no address, port, mark, range or device"
    if isinstance(entry, NftRule) and not (entry.text.isprintable() and entry.name.isprintable()):
        return "a rule has characters that are not printable"
    return ""


def add(entry: Any) -> str:
    """The command that makes the entry exist; a rule goes to the end of its chain."""
    match entry:
        case NftSet():
            kind, data = ("map", f" : {entry.data}") if entry.data else ("set", "")
            flags = f" flags {', '.join(entry.flags)};" if entry.flags else ""
            return f'add {kind} {TABLE} {entry.name} {{ type {entry.type}{data};{flags} comment "{entry.category}"; }}'
        case NftChain():
            return f"add chain {TABLE} {entry.name}" + (f" {{ {entry.hook} }}" if entry.hook else "")
        case NftCounter():
            return f'add counter {TABLE} {entry.name} {{ comment "{entry.category}"; }}'
        case NftElement():
            data = f" : {entry.data}" if entry.data else ""
            return f"add element {TABLE} {entry.set} {{ {entry.value}{data} }}"
        case NftRule():
            comment = f"{entry.name} {entry.category}.{entry.order}"
            return f'add rule {TABLE} {entry.chain} {entry.text} comment "{comment}"'
        case NftShield():
            hook = f'type filter hook ingress device "{entry.dev}" priority 0; policy drop;'
            return f"add chain {SHIELD_TABLE} {entry.chain} {{ {hook} }}"
        case NftTag():
            chain = f"{SHIELD_TABLE} {entry.chain}"
            hook = f'type filter hook egress device "{entry.dev}" priority 0; policy accept;'
            rule = f"add rule {chain} meta mark & {entry.bit:#x} != 0 ether saddr set {entry.mac}"
            made = f"add chain {chain} {{ {hook} }}; flush chain {chain}"
            return f"{made}; {rule}" if entry.bit else made
        case NftRelay() | NftHops() | NftSilence() | NftArpSource():
            return _own_chain(entry)
    raise TypeError(type(entry).__name__)


def delete(entry: Any) -> str:
    """The command that ends it. Rules have none: their chain is flushed and filled again."""
    match entry:
        case NftSet():
            return f"delete {'map' if entry.data else 'set'} {TABLE} {entry.name}"
        case NftChain():
            return f"delete chain {TABLE} {entry.name}"
        case NftCounter():
            return f"delete counter {TABLE} {entry.name}"
        case NftElement():
            return f"delete element {TABLE} {entry.set} {{ {entry.value} }}"
        case NftShield() | NftTag():
            return f"delete chain {SHIELD_TABLE} {entry.chain}"
        case NftRelay() | NftHops() | NftSilence() | NftArpSource():
            return f"delete chain {entry.table} {entry.chain}"
    raise TypeError(type(entry).__name__)


def _own_chain(entry: NftRelay | NftHops | NftSilence | NftArpSource) -> str:
    """A chain for one purpose, mostly for one address, filled anew."""
    chain, hook = (
        f"{entry.table} {entry.chain}",
        "type filter hook prerouting priority mangle; policy accept;",
    )
    match entry:
        case NftRelay(via="") | NftArpSource(dev=""):
            rule = ""
        case NftHops():
            hook = "type filter hook prerouting priority raw - 10; policy accept;"
            to = ", ".join(f"{mac} : {ip}" for mac, ip in entry.hops)
            rule = (
                f'iifname "{entry.dev}" dup to ether saddr map {{ {to} }} device "{entry.out}" drop'
                if to
                else ""
            )
        case NftArpSource():
            hook = "type filter hook output priority 0; policy accept;"
            rule = f'oifname "{entry.dev}" arp operation request arp saddr ip set {entry.ip}'
        case NftRelay():
            family = "ip6" if ":" in entry.ip else "ip"
            match = f'iifname != "{entry.dev}" {family} daddr {entry.ip} ct state {{ invalid, new }}'
            rule = f'{match} meta mark set {entry.mark:#010x} dup to {entry.via} device "{entry.dev}" drop'
        case _ if ":" in entry.ip:
            # nft 1.0.6 has no name for the target of a neighbour solicitation
            rule = f"icmpv6 type nd-neighbor-solicit @th,64,128 {int(ip_address(entry.ip)):#034x} drop"
        case _:
            hook = "type filter hook input priority 0; policy accept;"
            rule = f"arp operation request arp daddr ip {entry.ip} drop"
    made = f"add chain {chain} {{ {hook} }}; flush chain {chain}"
    return f"{made}; add rule {chain} {rule}" if rule else made


def flush(chain: str) -> str:
    """Return the command that removes all rules of a chain."""
    return f"flush chain {TABLE} {chain}"


def parse(listing: str) -> Iterator[Any]:
    """The entries of a table that we wrote, as nft lists it; what does not have our comment is left out, and objects of others."""
    kind = name = ""
    body: list[str] = []
    for line in listing.splitlines():
        if opening := _OPENING.match(line):
            kind, name, body = opening[1], opening[2], []
        elif line == "\t}":
            yield from _entries(kind, name, body)
            kind = ""
        else:
            body.append(line)


def _entries(kind: str, name: str, body: list[str]) -> list[Any]:
    """Return the entries of one object; none of a kind that we do not write, or with a name or a number that is not ours."""
    reader = _READERS.get(kind)
    try:
        return list(reader(name, body)) if reader else []
    except ValueError:
        return []


def _chain(name: str, body: list[str]) -> Iterator[Any]:
    if name.startswith(HOPS_PREFIX):
        yield _hops(name, body)
        return
    for prefix, kind in (
        (RELAY_PREFIX, NftRelay),
        (SILENCE_PREFIX, NftSilence),
        (ARP_SOURCE_PREFIX, NftArpSource),
    ):
        if name.startswith(prefix):
            yield kind(ip=str(ip_address(bytes.fromhex(name.removeprefix(prefix)))))
            return
    hook = next((line.strip() for line in body if line.startswith("\t\ttype ")), "")
    if device := re.search(r' device "([^"]+)"', hook):
        yield NftTag(dev=device[1]) if name.startswith(TAG_PREFIX) else NftShield(device[1])
        return
    yield NftChain(name=name, hook=hook)
    for line in body:
        if rule := _RULE.match(line):
            yield NftRule(chain=name, text=rule[1], name=rule[2], category=int(rule[3]), order=int(rule[4]))


def _hops(name: str, body: list[str]) -> NftHops:
    match = _HOPS.search("\n".join(body))
    pairs = (pair.strip().partition(" : ")[::2] for pair in match[2].split(",")) if match else ()
    dev, out = (match[1], match[3]) if match else ("", "")
    return NftHops(ipv6=name.endswith("6"), dev=dev, out=out, hops=tuple(sorted(pairs)))


def _counter(name: str, body: list[str]) -> Iterator[NftCounter]:
    if comment := re.search(r'^\t\tcomment "(\d+)"$', "\n".join(body), re.MULTILINE):
        yield NftCounter(name=name, category=int(comment[1]))


def _set(name: str, body: list[str]) -> Iterator[Any]:
    text = "\n".join(body)
    comment = re.search(r'^\t\tcomment "(\d+)"$', text, re.MULTILINE)
    kind = re.search(r"^\t\ttype (.*?)(?: : (.*))?$", text, re.MULTILINE)
    if comment is None or kind is None:
        return
    category, flags = int(comment[1]), re.search(r"^\t\tflags (.*)$", text, re.MULTILINE)
    names = tuple(re.split(r",\s*", flags[1])) if flags else ()
    yield NftSet(name=name, type=kind[1], data=kind[2] or "", flags=names, category=category)
    elements = re.search(r"elements = \{(.*)\}", text, re.DOTALL)
    for element in _ELEMENT.findall(elements[1]) if elements else ():
        value, _, data = element.strip().partition(" : ")
        yield NftElement(set=name, value=value, data=data, category=category)


_READERS = {"chain": _chain, "counter": _counter, "set": _set, "map": _set}
