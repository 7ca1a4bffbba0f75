"""Routes to the Pods of other Nodes, from Pods and from the Node."""
