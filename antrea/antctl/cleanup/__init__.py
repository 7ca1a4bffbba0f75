"""`antctl cleanup`: removal of what Antrea leaves on Nodes and in the cluster after it was uninstalled."""
