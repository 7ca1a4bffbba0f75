"""Quantities such as 500k or 10M, as Kubernetes reads them.

Source: k8s.io/apimachinery pkg/api/resource ParseQuantity
"""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil

_FORM = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_QUANTITY = re.compile(
    r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,9})?", re.ASCII
)
_MULTIPLES = {
    "": Fraction(1),
    **{letter: Fraction(1, 1000**power) for power, letter in enumerate("mun", 1)},
    **{letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}
MAX_QUANTITY = 100
"""Characters of a quantity; Python converts no more than 4,300 digits."""
_FAR = 30
"""Exponent beyond which all quantities are zero, or capped."""
_MAX_VALUE = 2**63 - 1


def fault(text: str) -> str:
    """Return why `text` is not a quantity, in Kubernetes' words; empty if it is."""
    if len(text) <= MAX_QUANTITY and _QUANTITY.fullmatch(text):
        return ""
    return f"quantities must match the regular expression '{_FORM}'"


def whole(text: str) -> int:
    """Return the quantity, rounded up, as Kubernetes' `Value()`: at most 2^63 - 1 either way. Raises ValueError."""
    match = _QUANTITY.fullmatch(text) if len(text) <= MAX_QUANTITY else None
    if match is None:
        raise ValueError(fault(text))
    suffix = match[2] or ""
    number = Fraction(text.removesuffix(suffix))
    if suffix[1:].lstrip("+-").isdigit():
        value = number * Fraction(10) ** max(-_FAR, min(int(suffix[1:]), _FAR))
    else:
        value = number * _MULTIPLES[suffix]
    return max(-_MAX_VALUE, min(ceil(value), _MAX_VALUE))
