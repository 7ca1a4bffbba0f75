"""`antctl get featuregates`: blocks per component, in a layout of their own (pkg/antctl/raw/featuregates)."""

from __future__ import annotations

from typing import Any

TITLES = {
    "agent": "Antrea Agent Feature Gates",
    "agent-windows": "Antrea Agent Feature Gates (Windows)",
    "controller": "Antrea Controller Feature Gates",
}


def blocks(gates: list[dict[str, Any]]) -> str:
    """One block per component, with an empty line between two."""
    text = ""
    for component, title in TITLES.items():
        rows = [row for row in gates if row["component"] == component]
        if rows:
            text += ("\n" if text else "") + title + "\n" + _table(rows)
    return text


def _table(rows: list[dict[str, Any]]) -> str:
    cells = [
        ("FEATUREGATE", "STATUS", "VERSION"),
        *((row["name"], row["status"], row["version"]) for row in rows),
    ]
    first, second = (max(len(line[place]) for line in cells) + 5 for place in (0, 1))
    return "".join(f"{name:<{first}}{status:<{second}}{version}\n" for name, status, version in cells)
