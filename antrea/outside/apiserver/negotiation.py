"""Which form and which syntax an answer has, by the Accept header, and how a body is read.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
"""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import msgspec

from antrea.apis.null import without_nulls
from antrea.config.yaml_reader import strangers_document
from antrea.decoding import decode_json, decode_tree, guarded
from antrea.errors import Invalid
from antrea.outside.apiserver.form import Json, Metadata, Table
from antrea.outside.apiserver.status import ApiError

if TYPE_CHECKING:
    from antrea.apis.resource import Resource
    from antrea.outside.apiserver.form import Form

JSON, YAML = "application/json", "application/yaml"
MAX_YAML = 64 << 10
"""Bytes; JSON may be larger, and is what programs send."""
_WRITER = ThreadPoolExecutor(1, "yaml")
_SPOKEN = {JSON: JSON, "*/*": JSON, "application/*": JSON, YAML: YAML, "application/x-yaml": YAML}


class MediaRange(msgspec.Struct, frozen=True):
    """One element of an Accept header, in the client's order of liking."""

    media: str
    parameters: dict[str, str]


def accepted_types(accept: str) -> list[MediaRange]:
    """The media types that the client accepts; all if it names none."""
    ranges: list[tuple[float, int, MediaRange]] = []
    for element in (accept or "*/*").split(","):
        media, *rest = [part.strip() for part in element.split(";")]
        parameters = dict(part.partition("=")[::2] for part in rest)
        try:
            weight = float(parameters.get("q", "1"))
        except ValueError:
            weight = 1.0
        ranges.append((-weight, len(ranges), MediaRange(media.lower(), parameters)))
    return [wish for _, _, wish in sorted(ranges, key=lambda row: row[:2])]


def negotiate(resource: Resource, accept: str, *, include: str, watch: bool) -> tuple[Form, str]:
    """The form and the syntax that are liked best of those we have. Raises Answered: 406, or 400 for `include`."""
    for wish in accepted_types(accept):
        media = _SPOKEN.get(wish.media)
        if media is None or (watch and media == YAML):
            continue
        form = _form(resource, wish.parameters, include)
        if form is not None:
            return form, media
    spoken = f"{JSON};stream=watch" if watch else f"{JSON}, {YAML}"
    raise ApiError(406, f"only the following media types are accepted: {spoken}")


def _form(resource: Resource, parameters: dict[str, str], include: str) -> Form | None:
    wanted, group = parameters.get("as", ""), parameters.get("g", "")
    version = parameters.get("v", "")
    if not wanted:
        return Json(resource)
    if group != "meta.k8s.io" or version not in ("v1", "v1beta1"):
        return None
    if wanted == "Table" and resource.columns:
        if include not in ("", "None", "Metadata", "Object"):
            raise ApiError(400, f'includeObject: "{include}" is none of None, Metadata, Object')
        return Table(resource, include or "Metadata", version)  # type: ignore[arg-type]
    if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return Metadata()
    return None


def plain(accept: str) -> str:
    """The syntax of an answer that has one form only. Raises Answered: 406."""
    for wish in accepted_types(accept):
        if not wish.parameters.get("as") and (media := _SPOKEN.get(wish.media)):
            return media
    raise ApiError(406, f"only the following media types are accepted: {JSON}, {YAML}")


async def written(text: bytes, media: str) -> bytes:
    """JSON in the syntax that was chosen; YAML takes some 100 times as long to write, so not in the loop."""
    if media != YAML:
        return text
    return await asyncio.get_running_loop().run_in_executor(_WRITER, _yaml, text)


def _yaml(text: bytes) -> bytes:
    return msgspec.yaml.encode(msgspec.json.decode(text))


def read(text: bytes, content_type: str, struct: type[Any]) -> Any:
    """The object in a body. Raises Answered: 415, 400."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in (JSON, YAML, "application/x-yaml", ""):
        raise ApiError(
            415,
            "the body of the request was in an unknown format - accepted media types include:"
            f" {JSON}, {YAML}",
        )
    try:
        if media in (JSON, ""):
            return guarded(struct.__name__, _json, text, struct)
        if len(text) > MAX_YAML:
            raise ApiError(413, f"Request entity too large: limit of YAML is {MAX_YAML}; send JSON")
        return guarded(struct.__name__, _tree, text, struct)
    except Invalid as error:
        raise ApiError(400, f"{struct.__name__}: the body is not understood: {error.why}") from error


def _json(text: bytes, struct: type[Any]) -> Any:
    """Clients in Go write nulls, `creationTimestamp` above all. Raises ValueError."""
    # readers differ in which of two equal keys counts: what one judged another would store
    json.loads(text, object_pairs_hook=_once)
    try:
        return decode_json(text, struct, "body")
    except Invalid:
        return decode_tree(without_nulls(decode_json(text, object, "body")), struct, "body")


def _tree(text: bytes, struct: type[Any]) -> Any:
    return msgspec.convert(without_nulls(strangers_document(text)), struct)


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key is there twice")
