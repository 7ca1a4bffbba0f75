"""An aggregated API server: stores, watches, discovery, OpenAPI, tables, and who may do what."""
