"""Types that several kinds of crd.antrea.io share: names, selectors, addresses, conditions."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import msgspec

from antrea.apis.core import ObjectMeta
from antrea.apis.schema import Schema, doc

LABEL_VALUE = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
UPPER = {
    "asn": "ASN",
    "asns": "ASNs",
    "ca": "CA",
    "id": "ID",
    "ip": "IP",
    "ips": "IPs",
    "mac": "MAC",
    "mtu": "MTU",
    "tls": "TLS",
    "ttl": "TTL",
    "vlans": "VLANs",
}
"""Words that Kubernetes writes in capitals unless they come first."""

ADDRESS = {"oneOf": [{"format": "ipv4"}, {"format": "ipv6"}]}
Address: TypeAlias = Annotated[str, doc("", ADDRESS)]
"""An IPv4 or IPv6 address; the empty text is none."""
Cidr: TypeAlias = Annotated[str, doc(format="cidr")]
Int32: TypeAlias = Annotated[int, doc(format="int32")]
Port: TypeAlias = Annotated[int, doc(minimum=1, maximum=65535)]
Byte: TypeAlias = Annotated[int, doc(minimum=0, maximum=255)]
Vlan: TypeAlias = Annotated[int, doc("VLAN of the subnet; 0 if untagged.", minimum=0, maximum=4094)]


def json_name(field: str) -> str:
    """The name on the wire: external_ip_pools is externalIPPools, from_ is from."""
    first, *others = field.strip("_").split("_")
    return first + "".join(UPPER.get(word, word.capitalize()) for word in others)


class CrdStruct(msgspec.Struct, frozen=True, rename=json_name, omit_defaults=True):
    """A field with a default is left out while it has it; unknown fields are not looked at."""

    schema_keywords: ClassVar[Schema] = {}


class Metadata(ObjectMeta, frozen=True):
    """Fields read of the metadata of a custom resource."""

    generation: int = 0
    creation_timestamp: str = ""


class Requirement(CrdStruct, frozen=True):
    """One condition on labels."""

    key: Annotated[str, doc("Label that is looked at.")] = ""
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"] | None,
        doc("How the label's value relates to `values`."),
    ] = None
    values: Annotated[
        tuple[Annotated[str, doc(pattern=LABEL_VALUE)], ...], doc("For In and NotIn; otherwise empty.")
    ] = ()


class LabelSelector(CrdStruct, frozen=True):
    """Selector of objects whose labels meet all conditions; without any condition, of all."""

    match_expressions: Annotated[tuple[Requirement, ...], doc("Conditions, all of which must hold.")] = ()
    match_labels: Annotated[
        dict[str, Annotated[str, doc(pattern=LABEL_VALUE)]], doc("Labels with their exact values.")
    ] = {}


def selector(what: str, **more: Any) -> msgspec.Meta:
    """The sentence of a field that selects `what` by label."""
    return doc(f"Selects {what} by label.", **more)


class IPBlock(CrdStruct, frozen=True):
    """Addresses of a CIDR, without exceptions."""

    cidr: Annotated[Cidr, doc("Such as 10.0.0.0/24 or fd00::/64.")] = ""
    except_: Annotated[tuple[Cidr, ...], doc("Parts of `cidr` that do not count.")] = ()


class NamespacedName(CrdStruct, frozen=True):
    """An object by name."""

    name: Annotated[str, doc("Name of the object.")]
    namespace: Annotated[str, doc("Namespace of the object.")]


class ObjectReference(CrdStruct, frozen=True):
    """An object of any kind."""

    kind: Annotated[str, doc("Kind of the object.")] = ""
    namespace: Annotated[str, doc("Namespace of the object.")] = ""
    name: Annotated[str, doc("Name of the object.")] = ""
    uid: Annotated[str, doc("UID of the object.")] = ""
    api_version: Annotated[str, doc("API version of the object.")] = ""
    resource_version: Annotated[str, doc("The version that is meant.")] = ""
    field_path: Annotated[str, doc("The part that is meant.")] = ""


class Condition(CrdStruct, frozen=True):
    """One statement on how the object fares."""

    type: Annotated[str, doc("What is judged.")] = ""
    status: Annotated[str, doc("True, False or Unknown.")] = ""
    last_transition_time: Annotated[str, doc("When `status` last changed, RFC 3339.")] = ""
    reason: Annotated[str, doc("Why, in one word.")] = ""
    message: Annotated[str, doc("Why, in a sentence.")] = ""


class AppliedToPods(CrdStruct, frozen=True):
    """Pods that are meant: those of `podSelector` in Namespaces of `namespaceSelector`."""

    pod_selector: Annotated[LabelSelector | None, selector("Pods")] = None
    namespace_selector: Annotated[LabelSelector | None, selector("Namespaces")] = None
