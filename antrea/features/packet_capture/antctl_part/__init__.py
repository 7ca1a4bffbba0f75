"""`antctl packetcapture`."""
