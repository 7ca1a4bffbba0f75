"""HTTP requests of annotated Pods in the records of their connections."""
