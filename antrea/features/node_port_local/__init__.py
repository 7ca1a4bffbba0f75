"""NodePortLocal: Pods of annotated Services are reached at ports of their Node."""
