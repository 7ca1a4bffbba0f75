"""Support bundles: plan, contents, redaction."""
