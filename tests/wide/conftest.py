"""A fuzzer for a test, whose line is printed whatever comes of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from fuzzing import Fuzz

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Iterator[Fuzz]:
    found = Fuzz(request.node.name)
    yield found
    print(found.report)
