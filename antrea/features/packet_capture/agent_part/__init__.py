"""The effects of PacketCapture: processes that capture, files, uploads."""
