"""PacketCapture: packets of a Pod in a file."""
