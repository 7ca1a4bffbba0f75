"""Registry of the features: webhooks, API resources, generated pages."""
