"""Bill of materials of an image as a CycloneDX 1.6 document: it names Debian's packages, which are those of the day of the build.

Source: https://cyclonedx.org/docs/1.6/json/, https://github.com/package-url/purl-spec
"""

from __future__ import annotations

import tarfile
import uuid
from email.parser import HeaderParser
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from image_build.oci import Layer

DPKG = "var/lib/dpkg/status"
METADATA = ".dist-info/METADATA"
MAX_BYTES = 16 << 20
"""Bytes of a file that is read."""


class Component(NamedTuple):
    """A package as its own database names it."""

    kind: str
    """`deb` or `pypi`."""
    name: str
    version: str
    architecture: str = ""
    source: str = ""
    """The Debian source package, and its version if that is another; advisories name it."""


def components(layers: Iterable[Layer]) -> list[Component]:
    """All packages of Debian and Python in these layers."""
    return sorted({component for layer in layers for component in _in_layer(layer)})


def document(name: str, version: str, suite: str, components: Iterable[Component]) -> bytes:
    """The document on an image: the same bytes for the same packages."""
    parts = [_part(component, suite) for component in components]
    image = {
        "type": "container",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    content = msgspec.json.encode([image, parts])
    whole = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, content.hex())}",
        "version": 1,
        "metadata": {"component": image},
        "components": parts,
    }
    return msgspec.json.format(msgspec.json.encode(whole), indent=2) + b"\n"


def _in_layer(layer: Layer) -> Iterator[Component]:
    with tarfile.open(layer.path) as tar:
        for entry in tar:
            name = entry.name.removeprefix("./")
            if entry.isfile() and entry.size <= MAX_BYTES and (name == DPKG or name.endswith(METADATA)):
                file = tar.extractfile(entry)
                text = file.read().decode() if file else ""
                yield from _debian(text) if name == DPKG else (_python(text),)


def _debian(status: str) -> Iterator[Component]:
    for paragraph in status.split("\n\n"):
        fields = HeaderParser().parsestr(paragraph.strip())
        if fields.get("Status", "").endswith(" installed"):
            yield Component(
                "deb", fields["Package"], fields["Version"], fields["Architecture"], fields.get("Source", "")
            )


def _python(metadata: str) -> Component:
    fields = HeaderParser().parsestr(metadata)
    return Component("pypi", fields["Name"].lower().replace("_", "-"), fields["Version"])


def _part(component: Component, suite: str) -> dict[str, Any]:
    purl = f"pkg:{component.kind}/{'debian/' if component.kind == 'deb' else ''}{quote(component.name)}@{quote(component.version)}"
    if component.architecture:
        purl += f"?arch={component.architecture}&distro={suite}"
    part: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": component.name,
        "version": component.version,
        "purl": purl,
    }
    if component.source:
        part["properties"] = [{"name": "debian:source", "value": component.source}]
    return part
