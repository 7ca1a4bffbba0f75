"""Effects of Egress in the controller: addresses written into specs."""
