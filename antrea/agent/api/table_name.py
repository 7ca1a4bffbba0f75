"""Table names for the output of OVS, which has numbers only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_REFERENCE = re.compile(
    r"(?P<before>\btable=|\bgoto_table:|\bresubmit\([^,)]*,|\b(?:at|from) table )(?P<number>\d+)"
)
_STEP = re.compile(r"^(?P<before> *(?P<number>\d+)\. )", re.MULTILINE)


def named(text: str, names: Mapping[int, str]) -> str:
    """Replace table numbers in a dumped flow by names, as upstream's antctl prints them.

    table=5 ... resubmit(,7) ... ct(table=9) ... goto_table:8
    """
    return _REFERENCE.sub(
        lambda match: match["before"] + names.get(int(match["number"]), match["number"]), text
    )


def named_trace(text: str, names: Mapping[int, str]) -> str:
    """Replace table numbers in the output of ofproto/trace by names, also after the number at which each step begins.

    ` 3. in_port=1, priority 190` becomes ` 3. Classifier: in_port=1, priority 190`
    """

    def step(match: re.Match[str]) -> str:
        name = names.get(int(match["number"]))
        return f"{match['before']}{name}: " if name else match["before"]

    return _STEP.sub(step, named(text, names))
