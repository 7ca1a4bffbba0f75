"""Policies in the controller: what policies and groups mean, and for whom."""
