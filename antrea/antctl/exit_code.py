"""antctl for a program that runs it: the exit code is that of antctl, except where an API server refused or could not answer.

Then it is EX_NOPERM or EX_TEMPFAIL of sysexits(3).
"""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from antrea.antctl.main import antctl
from antrea.antctl.mode import mode_of
from antrea.antctl.request import ErrorResponse, Unreachable

FORBIDDEN: Final = 403
TOO_MANY, SERVER_ERROR = 429, 500


def code_of(error: click.ClickException) -> int:
    """The exit code after this error."""
    if isinstance(error, Unreachable):
        return os.EX_TEMPFAIL
    if isinstance(error, ErrorResponse):
        if error.status == FORBIDDEN:
            return os.EX_NOPERM
        if error.status == TOO_MANY or error.status >= SERVER_ERROR:
            return os.EX_TEMPFAIL
    return error.exit_code


def main() -> None:
    """Run antctl with the arguments of this process."""
    try:
        code = antctl(mode_of(os.environ))(prog_name="antctl", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = code_of(error)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
