"""A struct's annotations say its whole schema."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pytest

from antrea.apis.meta import as_number
from antrea.apis.schema import Extra, cel, doc, one_of, place, schema_of


class Leaf(msgspec.Struct, frozen=True, rename="camel"):
    """A leaf.

    And what the schema need not know.
    """

    leaf_size: Annotated[int, doc("How large.", minimum=1)]
    colour: Literal["green", "red"] | None = None


class Branch(msgspec.Struct, frozen=True):
    """Leaves."""

    schema_keywords: ClassVar[dict[str, Any]] = one_of("leaves", ("first", "last"))

    leaves: Annotated[tuple[Leaf, ...], doc("All.", maxItems=3)] = ()
    first: Leaf | None = None
    last: Annotated[Leaf | None, doc("The other end.")] = None


LEAF = {
    "type": "object",
    "description": "A leaf.",
    "required": ["leafSize"],
    "properties": {
        "leafSize": {"type": "integer", "description": "How large.", "minimum": 1},
        "colour": {"type": "string", "enum": ["green", "red"]},
    },
}


def of(hint: Any, *metas: msgspec.Meta) -> Any:
    """The schema of one field."""
    annotation = Annotated[hint, *metas] if metas else hint
    return schema_of(msgspec.defstruct("Holder", [("field", annotation)]))["properties"]["field"]


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (bytes, {"type": "string", "format": "byte"}),
        (str | None, {"type": "string"}),
        (int | str, {"x-kubernetes-int-or-string": True}),
        (int | str | None, {"x-kubernetes-int-or-string": True}),
        (int | float | None, {"type": "number"}),
        (Literal[4, 6], {"type": "integer", "enum": [4, 6]}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (Any, {"x-kubernetes-preserve-unknown-fields": True}),
        (Leaf, LEAF),
    ],
    ids=str,
)
def test_the_type_of_a_field_is_its_schema(hint: Any, schema: Any) -> None:
    assert of(hint) == schema


@pytest.mark.parametrize("hint", [object, float | str, complex, Literal["a", 1]], ids=str)
def test_a_type_without_a_schema_is_refused(hint: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        of(hint)


def test_a_struct_says_its_properties_what_is_required_and_its_own_keywords() -> None:
    assert schema_of(Branch) == {
        "type": "object",
        "description": "Leaves.",
        "properties": {
            "leaves": {"type": "array", "items": LEAF, "description": "All.", "maxItems": 3},
            "first": LEAF,
            "last": {**LEAF, "description": "The other end."},
        },
        "oneOf": [{"required": ["leaves"]}, {"required": ["first", "last"]}],
    }


def test_structs_within_become_references_where_the_document_wants_that() -> None:
    schema = schema_of(Branch, ref=lambda kind: f"#/definitions/{kind.__name__}")
    reference = {"$ref": "#/definitions/Leaf"}
    assert schema["properties"]["leaves"]["items"] == reference
    assert schema["properties"]["last"] == {**reference, "description": "The other end."}
    assert schema["properties"]["first"] == reference


def test_a_place_can_lack_properties_and_have_others_differ() -> None:
    told = of(
        tuple[Branch, ...],
        doc(
            "",
            without=("first", "leaves.colour"),
            at={"leaves.leafSize": {"minimum": None, "maximum": 9}, "leaves[]": cel("true", "never")},
        ),
    )
    assert place(told, "leaves[]") == {
        **LEAF,
        "properties": {"leafSize": {"type": "integer", "description": "How large.", "maximum": 9}},
        "x-kubernetes-validations": [{"rule": "true", "message": "never"}],
    }
    assert sorted(told["items"]["properties"]) == ["last", "leaves"]
    assert schema_of(Leaf) == LEAF


@pytest.mark.parametrize(
    "extra",
    [Extra(without=("leaves.size",)), Extra(without=("size",)), Extra(at={"leaves.size": {"minimum": 0}})],
)
def test_a_place_cannot_speak_of_properties_that_do_not_exist(extra: Extra) -> None:
    with pytest.raises(KeyError):
        of(Branch, msgspec.Meta(extra={"schema": extra}))


def test_the_outer_annotation_wins_over_the_inner_one() -> None:
    port = Annotated[int, doc("A port.", minimum=1)]
    assert of(port, doc("Port of the peer.", maximum=9)) == {
        "type": "integer",
        "description": "Port of the peer.",
        "minimum": 1,
        "maximum": 9,
    }


def test_decoding_does_not_repeat_what_the_api_server_has_judged() -> None:
    assert msgspec.json.decode(b'{"leafSize": -4}', type=Leaf) == Leaf(-4)


def test_numbers_are_shown_as_go_writes_them_also_where_a_default_is_whole_already() -> None:
    assert [repr(as_number(one)) for one in (5.0, 5.5, 0, float("inf"))] == ["5", "5.5", "0", "inf"]
