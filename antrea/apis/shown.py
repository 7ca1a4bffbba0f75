"""Text that its author chose freely, where a line or a word of ours begins and ends with it."""

from __future__ import annotations

from typing import Final

MAX_MESSAGE: Final = 4096
"""Characters of the message of a condition: kube-apiserver takes no object that has a list of all that someone wrote."""


def one_line(text: str) -> str:
    """`text` without anything that ends a line or moves a terminal: such characters, and backslashes, are escaped."""
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(
        character if character.isprintable() and character != "\\" else _escape(character)
        for character in text
    )


def shown_lines(text: str) -> str:
    """`text` with its lines and without anything else that moves a terminal: such characters are escaped."""
    return "\n".join(line if line.isprintable() else one_line(line) for line in text.split("\n"))


def one_word(text: str) -> str:
    """The same without blanks, too: one of the fields of a line."""
    return one_line(text).replace(" ", "\\x20")


def shortened(text: str, most: int = MAX_MESSAGE) -> str:
    """Return `text`, or its beginning and three dots if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")
