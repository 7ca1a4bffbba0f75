"""Path of the agent's answer to `antctl egress what-if`, and its parameter."""

from typing import Final

PATH: Final = "/egress/what-if"
LOSE: Final = "lose"
"""Names of the Nodes that are lost."""
