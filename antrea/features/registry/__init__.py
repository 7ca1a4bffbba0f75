"""What collects the features: webhooks, API resources, generated pages."""
