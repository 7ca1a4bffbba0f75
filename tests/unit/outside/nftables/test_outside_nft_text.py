"""nft entries as commands, and back from a listing as nft 1.0.6 prints it."""

from __future__ import annotations

import pytest

from antrea.host.nft import (
    RELAY_PREFIX,
    NftChain,
    NftElement,
    NftHops,
    NftRelay,
    NftRule,
    NftSet,
    NftShield,
    NftSilence,
    NftTag,
)
from antrea.outside.nftables import text as nft_text
from antrea.outside.nftables.libnftables import NftError

LISTING = """\
table inet antrea {
	comment "somebody's"
	map egress-snat {
		type mark : ipv4_addr
		comment "4"
		elements = { 0x00000001 : 10.1.1.1, 0x00000002 : 10.1.1.2 }
	}

	set ports {
		type ipv4_addr . inet_service
		flags interval,timeout
		comment "0"
		elements = { 10.0.0.0/8 . 80 comment "a, b",\n\t\t\t     10.0.0.1 . 90-100 }
	}

	set foreign {
		type ipv4_addr
		comment "not ours"
		elements = { 1.1.1.1 }
	}

	chain postrouting {
		comment "not ours either"
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr { 1.1.1.1, 2.2.2.2 } counter masquerade comment "Node to Pods, ip 0.-5"
		accept comment "foreign"
		accept
	}

	chain empty {
	}
}
table netdev antrea {
	chain shield-web-0-2f2276 {
		type filter hook ingress device "web-0-2f2276" priority filter; policy drop;
	}
}
"""


def test_a_listing_gives_back_what_we_wrote_and_nothing_of_others() -> None:
    assert list(nft_text.parse(LISTING)) == [
        NftSet(name="egress-snat", type="mark", data="ipv4_addr", category=4),
        NftElement(set="egress-snat", value="0x00000001", data="10.1.1.1", category=4),
        NftElement(set="egress-snat", value="0x00000002", data="10.1.1.2", category=4),
        NftSet(name="ports", type="ipv4_addr . inet_service", flags=("interval", "timeout")),
        NftElement(set="ports", value='10.0.0.0/8 . 80 comment "a, b"'),
        NftElement(set="ports", value="10.0.0.1 . 90-100"),
        NftChain(name="postrouting", hook="type nat hook postrouting priority srcnat; policy accept;"),
        NftRule(
            chain="postrouting",
            name="Node to Pods, ip",
            text="ip saddr { 1.1.1.1, 2.2.2.2 } counter masquerade",
            order=-5,
        ),
        NftChain(name="empty"),
        NftShield("web-0-2f2276"),
    ]


@pytest.mark.parametrize(
    ("entry", "added", "deleted"),
    [
        (
            NftSet(name="s", type="ipv4_addr", flags=("interval",), category=3),
            'add set inet antrea s { type ipv4_addr; flags interval; comment "3"; }',
            "delete set inet antrea s",
        ),
        (
            NftSet(name="m", type="mark", data="ipv4_addr"),
            'add map inet antrea m { type mark : ipv4_addr; comment "0"; }',
            "delete map inet antrea m",
        ),
        (NftChain(name="c"), "add chain inet antrea c", "delete chain inet antrea c"),
        (
            NftElement(set="m", value="0x00000001", data="10.1.1.1"),
            "add element inet antrea m { 0x00000001 : 10.1.1.1 }",
            "delete element inet antrea m { 0x00000001 }",
        ),
        (
            NftShield("p0"),
            'add chain netdev antrea shield-p0 { type filter hook ingress device "p0" priority 0; policy drop; }',
            "delete chain netdev antrea shield-p0",
        ),
        (
            NftTag(dev="gw0", bit=0x80000000, mac="02:e9:80:00:00:00"),
            (
                'add chain netdev antrea tag-gw0 { type filter hook egress device "gw0" priority 0; policy accept; };'
                " flush chain netdev antrea tag-gw0;"
                " add rule netdev antrea tag-gw0 meta mark & 0x80000000 != 0 ether saddr set 02:e9:80:00:00:00"
            ),
            "delete chain netdev antrea tag-gw0",
        ),
        (
            NftRelay(ip="192.0.2.9", via="10.244.1.1", dev="gw0", mark=0x80000000),
            (
                "add chain ip antrea relay-c0000209 { type filter hook prerouting priority mangle; policy accept; };"
                " flush chain ip antrea relay-c0000209;"
                ' add rule ip antrea relay-c0000209 iifname != "gw0" ip daddr 192.0.2.9 ct state { invalid, new }'
                ' meta mark set 0x80000000 dup to 10.244.1.1 device "gw0" drop'
            ),
            "delete chain ip antrea relay-c0000209",
        ),
        (
            NftHops(ipv6=False, dev="gw0", out="eth0", hops=(("02:eb:00:00:00:01", "192.0.2.2"),)),
            (
                "add chain ip antrea hops-4 { type filter hook prerouting priority raw - 10; policy accept; };"
                " flush chain ip antrea hops-4;"
                ' add rule ip antrea hops-4 iifname "gw0" dup to ether saddr map { 02:eb:00:00:00:01 : 192.0.2.2 }'
                ' device "eth0" drop'
            ),
            "delete chain ip antrea hops-4",
        ),
        (
            NftHops(ipv6=True, dev="gw0", out="eth0"),
            (
                "add chain ip6 antrea hops-6 { type filter hook prerouting priority raw - 10; policy accept; };"
                " flush chain ip6 antrea hops-6"
            ),
            "delete chain ip6 antrea hops-6",
        ),
        (
            NftSilence("192.0.2.9"),
            (
                "add chain arp antrea silence-c0000209 { type filter hook input priority 0; policy accept; };"
                " flush chain arp antrea silence-c0000209;"
                " add rule arp antrea silence-c0000209 arp operation request arp daddr ip 192.0.2.9 drop"
            ),
            "delete chain arp antrea silence-c0000209",
        ),
    ],
)
def test_an_entry_is_one_command_to_be_and_one_not_to_be(entry: NftSet, added: str, deleted: str) -> None:
    assert (nft_text.add(entry), nft_text.delete(entry)) == (added, deleted)


def test_a_rule_carries_its_name_category_and_order() -> None:
    rule = NftRule(chain="c", name="to Pods", text="accept", order=7, category=2)
    assert nft_text.add(rule) == 'add rule inet antrea c accept comment "to Pods 2.7"'


def test_an_error_tells_the_words_of_each_line_that_has_some() -> None:
    output = """\
/dev/stdin:3:34-41: Error: Could not process rule: No such file or directory
delete element inet antrea big { 1.1.1.99 }
                                 ^^^^^^^^
/proc/self/fd/9:12:1-4: Error: No symbol type information
add rule inet antrea c foo bar
"""
    assert NftError(output).lines == {2: "No such file or directory", 11: "No symbol type information"}
    assert NftError("Error: out of memory").lines == {}


@pytest.mark.parametrize(
    "other",
    [
        "\tflowtable f {\n\t\thook ingress priority filter\n\t}\n",
        '\tct helper h {\n\t\ttype "ftp" protocol tcp\n\t}\n',
        f"\tchain {RELAY_PREFIX}nothex {{\n\t}}\n",
    ],
)
def test_objects_of_others_in_our_table_are_left_out(other: str) -> None:
    """Also those whose kind or name we do not write: the sink would end at the first one."""
    chain = '\tchain c {\n\t\taccept comment "x 2.7"\n\t}\n'
    alone = list(nft_text.parse(f"table inet antrea {{\n{chain}}}\n"))
    assert list(nft_text.parse(f"table inet antrea {{\n{other}{chain}{other}}}\n")) == alone
    assert len(alone) == 2


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1 }; flush ruleset",
        "10.0.0.1\nflush ruleset",
        '10.0.0.1 comment "',
        "10.0.0.1, 10.0.0.2",
        "10.0.0.1 # the rest is a comment",
        "١",
        "$defined",
        "@other",
    ],
)
def test_an_element_with_other_characters_than_addresses_have_is_not_given_to_nft(text: str) -> None:
    assert nft_text.fault(NftElement(set="s", value=text))
    assert nft_text.fault(NftElement(set="s", value="10.0.0.1", data=text))


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("10.0.0.0/8", ""),
        ("0x00000003 . fd00::1 . 1024-1535", "jump egress-ports-1024"),
        ('"eth0; }"', "02:00:00:00:00:01"),
        ("tcp . 10.0.0.1 . 80", "10.0.0.2 . 8080"),
        ('"veth*"', ""),
    ],
)
def test_elements_of_ours_are_given_to_nft(value: str, data: str) -> None:
    assert nft_text.fault(NftElement(set="s", value=value, data=data)) == ""


def test_a_rule_of_several_lines_is_not_given_to_nft() -> None:
    assert nft_text.fault(NftRule(chain="c", name="n", text="accept\nflush ruleset"))
    assert nft_text.fault(NftRule(chain="c", name="n\nflush ruleset", text="accept"))
    assert nft_text.fault(NftRule(chain="c", name="n", text="accept")) == ""
