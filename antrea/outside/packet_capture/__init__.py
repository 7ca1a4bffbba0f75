"""Packets of one interface, written into a pcapng file by a process of its own."""
