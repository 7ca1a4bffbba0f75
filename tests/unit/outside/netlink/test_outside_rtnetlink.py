"""Which entries of the host are one and the same to the kernel."""

from __future__ import annotations

from antrea.host.address import Address
from antrea.host.route import Neighbour, Route
from antrea.outside.netlink.entry import name


def test_an_address_is_the_same_however_it_is_written() -> None:
    assert name(Address("gw0", "FD00:1:0::1/64")) == name(Address("gw0", "fd00:1::1/64"))
    assert name(Route(dst="FD00:0::/64", dev="gw0")) == name(Route(dst="fd00::/64", dev="eth0"))
    assert name(Neighbour(dev="gw0", ip="FD00::0:1", mac="")) == name(
        Neighbour(dev="gw0", ip="fd00::1", mac="")
    )


def test_what_is_not_an_address_is_left_alone() -> None:
    assert name(Address("tap:0", "10.0.0.1/8")) == (Address, ("tap:0", "10.0.0.1/8"))
