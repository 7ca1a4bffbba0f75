"""The command line that asks agents and the controller."""
