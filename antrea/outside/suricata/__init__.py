"""Suricata: orders by its command socket."""
