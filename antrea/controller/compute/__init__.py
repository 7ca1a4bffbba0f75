"""The process that computes policies and groups, and publishes them."""
