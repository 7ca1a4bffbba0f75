"""What holds for tests of every tier."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# How long examples take, or take to make, says how busy the machine is, and nothing about them. With CI=true the rest is
# hypothesis' own profile `ci`: the same examples in every run.
settings.register_profile(
    "house",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("house")
