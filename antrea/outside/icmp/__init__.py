"""Echo requests and replies over raw sockets."""
