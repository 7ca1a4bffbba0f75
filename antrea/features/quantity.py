"""Quantities such as 500k or 10M, as Kubernetes reads them.

Source: k8s.io/apimachinery pkg/api/resource ParseQuantity
"""

from __future__ import annotations

import re

_FORM = r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$"
_QUANTITY = re.compile(
    r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,9})?", re.ASCII
)


def fault(text: str) -> str:
    """Why `text` is no quantity, in Kubernetes' words; empty if it is one."""
    if _QUANTITY.fullmatch(text):
        return ""
    return f"quantities must match the regular expression '{_FORM}'"
