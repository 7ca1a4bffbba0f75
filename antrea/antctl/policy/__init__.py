"""Policies made of what was seen."""
