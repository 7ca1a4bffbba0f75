"""This Node: its preparation at start, its feeds and Events."""
