"""ServiceExternalIP in the controller: effects."""
