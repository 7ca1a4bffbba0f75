"""What requests for traces, captures, bundles, Node settings and Namespaces may say, with the whole message."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest
from admission_world import OK, World, facts_of, named, webhook

from antrea.features.framework.admission import Patch, Review

POD = "/api/v1/namespaces/n/pods/p"
SOURCE = {"source": {"namespace": "n", "pod": "p"}, "destination": {"ip": "10.0.0.1"}}
TRACES: dict[str, tuple[dict[str, Any], str]] = {
    "a Pod": (SOURCE, OK),
    "no source": (
        {"destination": {"pod": "p", "namespace": "n"}},
        "source Pod must be specified in non-live-traffic Traceflow",
    ),
    "a Pod that is not there": (
        {"source": {"namespace": "n", "pod": "q"}},
        "requested source Pod n/q not found",
    ),
    "a Pod of its Node's network": (
        {"source": {"namespace": "n", "pod": "host"}},
        "using hostNetwork Pod as source in non-live-traffic Traceflow is not supported",
    ),
    "live traffic of nobody": (
        {"liveTraffic": True, "source": {"ip": "10.0.0.1"}},
        "Traceflow x has neither source nor destination Pod specified",
    ),
    "live traffic to a Pod": ({"liveTraffic": True, "destination": {"namespace": "n", "pod": "q"}}, OK),
}


@pytest.mark.parametrize(("spec", "said"), TRACES.values(), ids=TRACES.keys())
def test_a_trace_gets_this_answer(spec: dict[str, Any], said: str) -> None:
    objects = {POD: {}, "/api/v1/namespaces/n/pods/host": {"spec": {"hostNetwork": True}}}
    assert World(objects=objects).decide("/validate/traceflow", named(spec)) == said


CAPTURE = {
    "source": {"pod": {"namespace": "n", "name": "p"}},
    "captureConfig": {"firstN": {"number": 1}},
}
SERVED = {**CAPTURE, "fileServer": {"url": "sftp://10.0.0.1:22/up"}}
KEYED = {**CAPTURE, "fileServer": {"url": "sftp://10.0.0.1:22/up", "hostPublicKey": "AAAA"}}


def unknown(kind: str) -> str:
    """The warning of a server without a key."""
    return (
        "spec.fileServer.hostPublicKey is empty: nothing is uploaded, because any server at the address could take the password. Set it "
        f'to the key that ssh-keyscan prints for the server, or annotate the {kind} with antrea.io/accept-any-host-key: "true"'
    )


CAPTURES_SECRET = "kube-system/antrea-packetcapture-fileserver-auth"


@pytest.mark.parametrize(
    ("new", "old", "readable", "said"),
    [
        (CAPTURE, None, (), OK),
        (SERVED, None, (CAPTURES_SECRET,), f"{OK}; {unknown('PacketCapture')}"),
        (KEYED, None, (CAPTURES_SECRET,), OK),
        ({**SERVED, "fileServer": {"url": "https://10.0.0.1/up"}}, None, (CAPTURES_SECRET,), OK),
        (SERVED, SERVED, (), OK),
        (
            {**SERVED, "source": {"pod": {"namespace": "n", "name": "other"}}},
            SERVED,
            (),
            (
                f'spec.fileServer: user "eve" is not authorized to get Secret {CAPTURES_SECRET} used to authenticate'
                " to the file server"
            ),
        ),
        (
            SERVED,
            CAPTURE,
            (),
            (
                f'spec.fileServer: user "eve" is not authorized to get Secret {CAPTURES_SECRET} used to authenticate'
                " to the file server"
            ),
        ),
        (
            SERVED,
            None,
            None,
            (
                "spec.fileServer: failed to authorize access to file server authentication Secret"
                f" {CAPTURES_SECRET}: the API server is away"
            ),
        ),
    ],
)
def test_a_capture_goes_to_a_server_only_for_who_may_read_the_secret(
    new: Any, old: Any, readable: tuple[str, ...] | None, said: str
) -> None:
    world = World(readable=readable)
    before = None if old is None else named(old)
    assert world.decide("/validate/packetcapture", named(new), before) == said


@pytest.mark.parametrize("path", ["packetcapture", "supportbundlecollection"])
@pytest.mark.parametrize(("value", "is_warned"), [("true", False), ("yes", True), ("", True)])
def test_a_server_without_a_key_is_accepted_by_an_annotation(path: str, value: str, is_warned: bool) -> None:
    world = World(readable=(CAPTURES_SECRET,))
    spec = SERVED if path == "packetcapture" else bundle()["spec"]
    found = named(spec, annotations={"antrea.io/accept-any-host-key": value})
    assert ("hostPublicKey is empty" in world.decide(f"/validate/{path}", found)) == is_warned


def wire(*fields: bytes) -> str:
    return base64.b64encode(b"".join(len(one).to_bytes(4) + one for one in fields)).decode()


def bundle(
    key: str = "", *, secret: dict[str, str] | None = None, url: str = "sftp://a", done: tuple[str, ...] = ()
) -> Any:
    spec = {
        "nodes": {"nodeNames": ["a"]},
        "fileServer": {"url": url, **({"hostPublicKey": key} if key else {})},
        "authentication": {"authType": "BasicAuthentication", **({"authSecret": secret} if secret else {})},
    }
    conditions = [{"type": one, "status": "True"} for one in done]
    return {**named(spec), "status": {"conditions": conditions}}


SECRET = {"namespace": "n", "name": "s"}
REFERENCE = "spec.authentication.authSecret"
NO_RIGHT = f'{REFERENCE}: user "eve" is not authorized to get Secret n/s referenced in {REFERENCE}'
KEYS: dict[str, tuple[str, str]] = {
    "ed25519": (wire(b"ssh-ed25519", b"k" * 32), ""),
    "RSA": (wire(b"ssh-rsa", b"\1\0\1", b"n" * 256), ""),
    "cut": (wire(b"ssh-ed25519"), "ssh: short read"),
    "words": (base64.b64encode(b"not a key").decode(), "ssh: short read"),
    "unknown": (wire(b"ssh-moon", b"k"), "ssh: unknown key algorithm: ssh-moon"),
    "short": (wire(b"ssh-ed25519", b"k"), "invalid size 1 for Ed25519 public key"),
    "long": (wire(b"ssh-ed25519", b"k" * 32, b"more"), "ssh: trailing junk in public key"),
}


@pytest.mark.parametrize(("key", "why"), KEYS.values(), ids=KEYS.keys())
def test_a_host_key_is_one_in_wire_format(key: str, why: str) -> None:
    said = World().decide("/validate/supportbundlecollection", bundle(key))
    assert said == (f"spec.fileServer.hostPublicKey: invalid host public key: {why}" if why else OK)


@pytest.mark.parametrize(
    ("new", "old", "readable", "said"),
    [
        (bundle(), None, (), f"{OK}; {unknown('SupportBundleCollection')}"),
        (bundle(url="https://a"), None, (), OK),
        (
            bundle(secret={"name": "s"}),
            None,
            (),
            f"{REFERENCE}: {REFERENCE} must specify both name and namespace",
        ),
        (bundle(secret=SECRET), None, ("n/s",), f"{OK}; {unknown('SupportBundleCollection')}"),
        (bundle(secret=SECRET), None, (), NO_RIGHT),
        (bundle(secret=SECRET), bundle(secret=SECRET), (), OK),
        (bundle(secret=SECRET, url="sftp://eve"), bundle(secret=SECRET), (), NO_RIGHT),
        (
            bundle(secret=SECRET),
            None,
            None,
            f"{REFERENCE}: failed to authorize access to authSecret n/s: the API server is away",
        ),
        (bundle(), bundle(done=("Started",)), (), OK),
        (
            bundle(url="sftp://b"),
            bundle(done=("Started",)),
            (),
            "spec: SupportBundleCollection x is started, cannot be updated",
        ),
        (
            bundle(),
            bundle(done=("Started", "Completed")),
            (),
            "spec: SupportBundleCollection x is completed, cannot be updated",
        ),
        (None, bundle(), (), OK),
    ],
)
def test_a_bundle_gets_this_answer(new: Any, old: Any, readable: tuple[str, ...] | None, said: str) -> None:
    assert World(readable=readable).decide("/validate/supportbundlecollection", new, old) == said


VLANS: dict[str, str] = {
    "7": "",
    "7-4094": "",
    "4095": "VLAN ID 4095 is greater than the maximum VLAN ID 4094",
    "9-7": "VLAN range start 9 is greater than end 7",
    "x": 'invalid VLAN ID "x": strconv.ParseUint: parsing "x": invalid syntax',
    "1-": 'invalid VLAN range end "": strconv.ParseUint: parsing "": invalid syntax',
    "-1": 'invalid VLAN range start "": strconv.ParseUint: parsing "": invalid syntax',
    "70000": 'invalid VLAN ID "70000": strconv.ParseUint: parsing "70000": value out of range',
    "٣": 'invalid VLAN ID "٣": strconv.ParseUint: parsing "٣": invalid syntax',
}


@pytest.mark.parametrize(("text", "why"), VLANS.items())
def test_vlans_of_a_node_get_this_answer(text: str, why: str) -> None:
    bridge = {
        "bridgeName": "b",
        "physicalInterfaces": [{"name": "e"}, {"name": "f", "allowedVLANs": ["1", text]}],
    }
    said = World().decide(
        "/validate/antreanodeconfig",
        named({"nodeSelector": {}, "secondaryNetwork": {"ovsBridges": [bridge]}}),
    )
    path = "spec.secondaryNetwork.ovsBridges[0].physicalInterfaces[1].allowedVLANs"
    assert said == (f"{path}: is invalid: {why}" if why else OK)


def patches(path: str, new: Any) -> list[Patch]:
    row = webhook(path)
    assert row.mutate
    return list(row.mutate(facts_of(), Review("CREATE", msgspec.convert(new, row.kind))))


def test_a_namespace_gets_the_label_of_its_name() -> None:
    label = "antrea.io/metadata.name"
    said = [
        patches("/mutate/namespace", {"metadata": {"name": "a", **meta}})
        for meta in ({}, {"labels": {"x": "y", label: "b"}}, {"labels": {label: "a"}})
    ]
    assert said == [
        [Patch("/metadata/labels", {label: "a"})],
        [Patch("/metadata/labels", {"x": "y", label: "a"})],
        [],
    ]


def test_unnamed_rules_get_the_names_that_upstream_gives_them() -> None:
    peer = {"podSelector": {"matchLabels": {"app": "db"}}}
    rule = {"action": "Drop", "from": [peer], "ports": [{"protocol": "TCP", "port": 80}]}
    spec = {"priority": 5, "tier": "", "ingress": [rule, {**rule, "name": "kept"}], "egress": []}
    assert patches("/mutate/acnp", named(spec)) == [
        Patch("/spec/ingress/0/name", "ingress-drop-ed700e3"),
        Patch("/spec/tier", "application"),
    ]


def test_a_name_does_not_depend_on_how_the_rule_was_written() -> None:
    one = {
        "action": "Allow",
        "to": [{"podSelector": {"matchLabels": {"a": "1", "b": "2"}}}],
        "enableLogging": False,
    }
    other = {
        "to": [{"podSelector": {"matchLabels": {"b": "2", "a": "1"}}, "group": ""}],
        "action": "Allow",
        "ports": [],
    }
    first, second = (patches("/mutate/annp", named({"tier": "t", "egress": [rule]})) for rule in (one, other))
    assert first == second
