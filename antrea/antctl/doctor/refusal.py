"""A program that waits for the correction of the configuration that it was started with: alive, and not ready."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from antrea.antctl.request import ErrorResponse, text

if TYPE_CHECKING:
    from antrea.antctl.request import Server

CHECK: Final = "configuration"
"""The check of /readyz, which only a program that waits has, and the check of the doctor."""
FAILED: Final = re.compile(rf"^\[-\]{CHECK} failed: (.*?)\s*^readyz check failed", re.MULTILINE | re.DOTALL)


def refusal(server: Server, prefix: str = "") -> str:
    """Return why the configuration was refused; empty if the program does not wait. Raises Failure if it does not answer.

    `prefix` leads to the program's API where `server` is another. /readyz is open to everybody, and has no other answer while
    the program waits.
    """
    try:
        text(server, f"{prefix}/readyz")
    except ErrorResponse as error:
        failed = FAILED.search(error.format_message())
        return failed[1] if failed else ""
    return ""
