"""Which form and which syntax an answer has, by the Accept header, and how a body is read.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from antrea.apis.null import without_nulls
from antrea.outside.aggregated.form import Json, Metadata, Table
from antrea.outside.aggregated.status import Answered

if TYPE_CHECKING:
    from antrea.apis.resource import Resource
    from antrea.outside.aggregated.form import Form

JSON, YAML = "application/json", "application/yaml"
MOST_YAML = 256 << 10
"""Bytes; JSON may be larger, and is what programs send."""
_SPOKEN = {JSON: JSON, "*/*": JSON, "application/*": JSON, YAML: YAML, "application/x-yaml": YAML}


class Wish(msgspec.Struct, frozen=True):
    """One element of an Accept header, in the client's order of liking."""

    media: str
    parameters: dict[str, str]


def wishes(accept: str) -> list[Wish]:
    """What the client takes; everything if it does not say."""
    found: list[tuple[float, int, Wish]] = []
    for element in (accept or "*/*").split(","):
        media, *rest = [part.strip() for part in element.split(";")]
        parameters = dict(part.partition("=")[::2] for part in rest)
        try:
            weight = float(parameters.get("q", "1"))
        except ValueError:
            weight = 1.0
        found.append((-weight, len(found), Wish(media.lower(), parameters)))
    return [wish for _, _, wish in sorted(found, key=lambda row: row[:2])]


def negotiate(resource: Resource, accept: str, *, include: str, watch: bool) -> tuple[Form, str]:
    """The form and the syntax that are liked best of those we have. Raises Answered: 406, or 400 for `include`."""
    for wish in wishes(accept):
        media = _SPOKEN.get(wish.media)
        if media is None or (watch and media == YAML):
            continue
        form = _form(resource, wish.parameters, include)
        if form is not None:
            return form, media
    spoken = f"{JSON};stream=watch" if watch else f"{JSON}, {YAML}"
    raise Answered(406, f"only the following media types are accepted: {spoken}")


def _form(resource: Resource, parameters: dict[str, str], include: str) -> Form | None:
    wanted, group = parameters.get("as", ""), parameters.get("g", "")
    version = parameters.get("v", "")
    if not wanted:
        return Json(resource)
    if group != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    if wanted == "Table":
        if include not in ("", "None", "Metadata", "Object"):
            raise Answered(400, f'includeObject: "{include}" is none of None, Metadata, Object')
        return Table(resource, include or "Metadata", version)  # type: ignore[arg-type]
    if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return Metadata()
    return None


def plain(accept: str) -> str:
    """The syntax of an answer that has one form only. Raises Answered: 406."""
    for wish in wishes(accept):
        if not wish.parameters.get("as") and (media := _SPOKEN.get(wish.media)):
            return media
    raise Answered(406, f"only the following media types are accepted: {JSON}, {YAML}")


def written(text: bytes, media: str) -> bytes:
    """JSON in the syntax that was chosen."""
    return msgspec.yaml.encode(msgspec.json.decode(text)) if media == YAML else text


def read(text: bytes, content_type: str, struct: type[Any]) -> Any:
    """The object in a body. Raises Answered: 415, 400."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in (JSON, YAML, "application/x-yaml", ""):
        raise Answered(
            415,
            "the body of the request was in an unknown format - accepted media types include:"
            f" {JSON}, {YAML}",
        )
    try:
        if media in (JSON, ""):
            return _json(text, struct)
        return msgspec.convert(without_nulls(msgspec.yaml.decode(_without_aliases(text))), struct)
    except (msgspec.DecodeError, ValueError, RecursionError, yaml.YAMLError) as why:
        raise Answered(400, f"{struct.__name__}: the body is not understood: {why}") from why


def _json(text: bytes, struct: type[Any]) -> Any:
    """Clients in Go write nulls, `creationTimestamp` above all."""
    try:
        return msgspec.json.decode(text, type=struct)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(msgspec.json.decode(text)), struct)


def _without_aliases(text: bytes) -> bytes:
    """A few aliases of aliases stand for more than any memory holds. Raises Answered: 413, 400; YAMLError."""
    if len(text) > MOST_YAML:
        raise Answered(413, f"Request entity too large: limit of YAML is {MOST_YAML}; send JSON")
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.CSafeLoader)):
        raise Answered(400, "YAML aliases are not taken")
    return text
