"""What holds for tests of every tier."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Generator

MAX_ID = 200
"""Maximum length of a value in the name of a test: pytest has the name in the environment of all programs, which execve(2) limits."""


# How long examples take, or take to make, says how busy the machine is, and nothing about them. With CI=true the rest is
# hypothesis' own profile `ci`: the same examples in every run.
settings.register_profile(
    "house",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name long text by its argument alone, since a random certificate has another length in each process; None: as pytest does."""
    return f"long {argname}" if isinstance(val, str | bytes) and len(val) > MAX_ID else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Tests that are `untraced`, and all of Hypothesis, do the same again and again: that is not worth tracing."""
    tracer = sys.gettrace()
    if item.get_closest_marker("untraced") or getattr(
        getattr(item, "obj", None), "is_hypothesis_test", False
    ):
        sys.settrace(None)
    try:
        return (yield)
    finally:
        sys.settrace(tracer)
