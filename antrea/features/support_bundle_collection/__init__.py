"""SupportBundleCollection: logs and state of Nodes in files."""
