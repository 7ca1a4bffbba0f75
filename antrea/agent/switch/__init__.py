"""The switch of this Node: its capabilities, recovery, packets and counters."""
