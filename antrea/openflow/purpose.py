"""Numbers that are declared once, each with the sentence that the generated page prints."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class Purposed(IntEnum):
    """An integer with a name and a purpose: `NORMAL = 200, "most flows"`."""

    purpose: str

    def __new__(cls, value: int, purpose: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.purpose = purpose
        return member
