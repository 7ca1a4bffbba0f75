"""The Node's own side of Pod networking: gateway, forwarding, source translation, the transport interface."""
