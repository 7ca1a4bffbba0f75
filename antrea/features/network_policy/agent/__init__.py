"""Policies in the agent: rules, conjunctions, verdicts, statistics."""
