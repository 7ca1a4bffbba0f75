"""Admission of policies, tiers and groups."""
