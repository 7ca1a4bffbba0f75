"""Keys of the members of groups that the controller sends."""

from __future__ import annotations

from antrea.apis import controlplane as cp
from antrea.features.network_policy.agent.received import SentAddressMember

POD = cp.PodReference(name="web", namespace="shop")
IP = bytes(10) + b"\xff\xff\x0a\x0a\x00\x07"


def test_members_that_differ_in_anything_have_keys_of_their_own() -> None:
    members = [
        cp.GroupMember(),
        cp.GroupMember(pod=POD),
        cp.GroupMember(pod=cp.PodReference(name="shop", namespace="web")),
        cp.GroupMember(external_entity=cp.ExternalEntityReference(name="web", namespace="shop")),
        cp.GroupMember(node=cp.NodeReference(name="web")),
        cp.GroupMember(service=cp.ServiceReference(name="web", namespace="shop")),
        cp.GroupMember(pod=POD, ips=(IP,)),
        cp.GroupMember(pod=POD, ips=(IP, bytes(16))),
        cp.GroupMember(pod=POD, ips=(bytes(16), IP)),
        cp.GroupMember(pod=POD, ips=(IP,), ports=(cp.NamedPort(port=80, name="http", protocol="TCP"),)),
        cp.GroupMember(pod=POD, ips=(IP,), ports=(cp.NamedPort(port=80, name="http", protocol="UDP"),)),
    ]
    keys = {SentAddressMember(group, one).key for group in ("a", "b") for one in members}
    assert len(keys) == 2 * len(members)


def test_a_member_has_the_same_short_key_whoever_made_it() -> None:
    first = SentAddressMember("group", cp.GroupMember(pod=POD, ips=(IP,)))
    again = SentAddressMember(
        "group", cp.GroupMember(ips=(bytes(IP),), pod=cp.PodReference(namespace="shop", name="web"))
    )
    assert first.key == again.key
    assert len(first.key) == len("group ") + 32
