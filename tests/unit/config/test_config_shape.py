"""What the text of a value has to look like, for programs and for the chart that refuses it before them."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

import pytest

from antrea.config import shape as shapes
from antrea.config.shape import Shape, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator

RIGHT = {
    "Duration": ("0", "5s", "1m30s", "1.5h", ".5s", "5.s", "3µs"),
    "Cidr": ("10.0.0.0/8", "10.0.0.1/08", "10.0.0.0/255.0.0.0", "fd00::/64", "::/0", "::ffff:1.2.3.4/128"),
    "CidrList": ("10.0.0.0/8", "10.0.0.0/8, fd00::/64", "10.0.0.1,::1"),
    "PortRange": ("61000-62000", "1-65535"),
    "HostPort": ("dns", "dns:53", "10.0.0.1:65535", "::1", "[::1]", "[::1]:53"),
    "CollectorAddress": ("a", "a:4739", "ns/a:4739:TLS", "a::tcp", "a:tcp", "[::1]:1:grpc", "a:"),
    "BindAddress": ("0.0.0.0:10256", "[::]:80", "[fe80::1%eth0]:80"),
    "ServiceRef": ("kube-system/kube-dns", "10.96.0.10", "fd00::1"),
    "InterfaceName": ("antrea-gw0", "a23456789012345", "eth0.181"),
}
WRONG = {
    "Duration": ("5", "s", "-1s", "1.2.3s", "5 s"),
    "Cidr": ("10.0.0.0", "10.0.0.0/33", "256.0.0.0/8", "1.2.3/8", "fd00::/129", "abc", "abc/8"),
    "CidrList": ("abc", "10.0.0.0/8,", "10.0.0.0/33", "10.0.0.0/8 fd00::/64"),
    "PortRange": ("9-1", "1-1", "0-5", "1-65536", "5", "a-b"),
    "HostPort": ("dns:0", "dns:65536", "dns:a", "[::1]:99999", "[::1", "[::1]6"),
    "CollectorAddress": ("a:b:c:d", "a:65536", "a:1:http", ":4739"),
    "BindAddress": ("abc", "0.0.0.0", "0.0.0.0:0", "host:80", "[::]"),
    "ServiceRef": ("kube-dns", "a/b/c", "A/b", "256.0.0.1"),
    "InterfaceName": ("a234567890123456", "a/b", "a b", "."),
}


def shape(name: str) -> Shape:
    found = shape_of(getattr(shapes, name))
    assert found is not None
    return found


def is_rendered(shape: Shape, text: str) -> bool:
    """Whether the chart takes it, as templates/_refusals.tpl judges."""
    if re.fullmatch(shape.pattern, text) is None:
        return False
    first, _, last = text.partition("-")
    return not shape.is_range or int(first) < int(last)


def neighbors(chance: random.Random, text: str) -> Iterator[str]:
    """Texts that differ from it in a few places."""
    for _ in range(200):
        letters = list(text)
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(letters) + 1)
            letters[place : place + chance.randrange(2)] = chance.choice("0123456789.:/-,aesTmf")
        yield "".join(letters)


@pytest.mark.parametrize("name", RIGHT)
def test_the_chart_takes_what_programs_take(name: str) -> None:
    assert [text for text in RIGHT[name] if not shape(name).accepts(text)] == []
    chance = random.Random(name)
    texts = [*RIGHT[name], *(near for text in RIGHT[name] for near in neighbors(chance, text))]
    refused = [text for text in texts if shape(name).accepts(text) and not is_rendered(shape(name), text)]
    assert refused == []


@pytest.mark.parametrize("name", WRONG)
def test_the_chart_refuses_what_programs_refuse(name: str) -> None:
    assert [text for text in WRONG[name] if shape(name).accepts(text) or is_rendered(shape(name), text)] == []
