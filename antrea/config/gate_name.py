"""Recognition of a feature gate that is set at another level than `featureGates`."""

from __future__ import annotations

import difflib

from antrea.config.gates import GATE_NAMES

SECTION = "featureGates"
_BY_LOWER = {name.lower(): name for name in GATE_NAMES}


def gate_meant(key: str, value: object) -> str:
    """The path of the gate that a key beside `featureGates` was meant to be; empty if it was none.

    Names of gates are capitalized and have a boolean; keys of the files are not, so that of both the gate is meant.
    """
    if not isinstance(value, bool):
        return ""
    if (name := _BY_LOWER.get(key.lower())) is None and key[:1].isupper():
        name = next(iter(difflib.get_close_matches(key, GATE_NAMES, n=1, cutoff=0.75)), None)
    return f"{SECTION}.{name}" if name else ""
