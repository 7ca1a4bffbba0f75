"""What holds for tests of every tier."""

from __future__ import annotations

from hypothesis import settings

# How long one example takes says how busy the machine is, and nothing about the example.
settings.register_profile("house", deadline=None)
settings.load_profile("house")
