"""What holds for tests of every tier."""

from __future__ import annotations

from hypothesis import settings

# How long one example takes says how busy the machine is, and nothing about the example. With CI=true the rest is
# hypothesis' own profile `ci`: the same examples in every run.
settings.register_profile("house", settings.get_profile(settings.get_current_profile_name()), deadline=None)
settings.load_profile("house")
