"""Nouns inside: frozen rows that feeds write and units read. No logic."""
