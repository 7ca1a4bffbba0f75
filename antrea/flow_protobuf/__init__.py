"""Flow records as protocol buffers, as agents send them by gRPC and streams of records have them. No I/O."""
