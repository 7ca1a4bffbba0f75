"""antrea-controller's API, as agents use it."""
