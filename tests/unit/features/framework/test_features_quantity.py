"""Quantities have the value that Kubernetes gives them."""

from __future__ import annotations

import pytest

from antrea.features.framework.quantity import fault, whole


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("7", 7), ("500k", 500_000), ("10M", 10_000_000), ("1.5G", 1_500_000_000), (".5k", 500), ("5.", 5),
        ("1Ki", 1024), ("1.5Gi", 3 * 2**29), ("1e3", 1000), ("2E3", 2000), ("1E", 10**18), ("12e-1", 2), ("1500m", 2),
        ("1n", 1), ("-1m", 0), ("-5M", -5_000_000), ("+3k", 3000), ("9E", 9 * 10**18), ("99E", 2**63 - 1),
        ("1e999999999", 2**63 - 1), ("1e-999999999", 1),
    ],
)  # fmt: skip
def test_a_quantity_is_rounded_up_to_a_whole_number(text: str, value: int) -> None:
    assert fault(text) == ""
    assert whole(text) == value


@pytest.mark.parametrize(
    "text", ["", "fast", "1 M", "1e", "k", "1.2.3", "1KI", "0x10", "1" * 101, "1" * 250_000]
)
def test_what_is_no_quantity_has_no_value(text: str) -> None:
    assert fault(text) != ""
    with pytest.raises(ValueError, match="quantities must match"):
        whole(text)
