"""Put names of tables into texts of OVS, which has their numbers only."""

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
    """A dumped flow with names of tables in place of numbers, as upstream's antctl prints them.

    table=5 ... resubmit(,7) ... ct(table=9) ... goto_table:8
    """
    return _REFERENCE.sub(
        lambda found: found["before"] + names.get(int(found["number"]), found["number"]), text
    )


def named_trace(text: str, names: Mapping[int, str]) -> str:
    """The output of ofproto/trace with names: as `named`, and after the number at which each step begins.

    ` 3. in_port=1, priority 190` becomes ` 3. Classifier: in_port=1, priority 190`
    """

    def step(found: re.Match[str]) -> str:
        name = names.get(int(found["number"]))
        return f"{found['before']}{name}: " if name else found["before"]

    return _STEP.sub(step, named(text, names))
