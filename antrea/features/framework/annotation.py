"""Kinds of objects that have annotations, and checks of the values of annotations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from antrea.config.shape import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

POD, NAMESPACE, NODE, SERVICE = "Pod", "Namespace", "Node", "Service"
FAILBACK_VALUES: Final = ("immediate", "when-idle", "never", "")
FAILBACKS: Final = "immediate, when-idle or never"
BOOLEANS: Final = ("1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False", "")
MAX_PORTS: Final = 256
"""Characters of a list of ports: a Node writes them, and all agents read them at each change of the Node."""
_PORTS = re.compile(r"\s*(true|[0-9]{1,5})(\s*,\s*(true|[0-9]{1,5}))*\s*")


def among(*values: str, lower: bool = False) -> Callable[[str], bool]:
    """Return a check for one of these values."""
    return lambda text: (text.strip().lower() if lower else text.strip()) in values


def is_boolean(text: str) -> bool:
    """Whether it is a boolean as Go reads it; empty is one."""
    return text in BOOLEANS


def is_duration(text: str) -> bool:
    """Whether it is a duration above 0."""
    try:
        return seconds(text) > 0
    except ValueError:
        return False


def is_count(text: str) -> bool:
    """Whether it is a number from 0 to 255."""
    return bool(re.fullmatch(r"[0-9]{1,3}", text)) and int(text) <= 255


def are_ports(text: str) -> bool:
    """Whether it is `true`, or ports separated by commas."""
    return (
        len(text) <= MAX_PORTS
        and bool(_PORTS.fullmatch(text))
        and all(word.strip() == "true" or 0 < int(word) < 65536 for word in text.split(","))
    )
