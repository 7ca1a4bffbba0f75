"""This Node: what has to be there at start, its feeds and Events."""
