"""The agent's own API: what it shows, and what it does on request."""
