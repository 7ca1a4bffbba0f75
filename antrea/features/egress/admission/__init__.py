"""Admission of Egresses."""
