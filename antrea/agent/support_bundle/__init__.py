"""The effects of SupportBundleCollection: bundles that are made and sent to a file server, and reports."""
