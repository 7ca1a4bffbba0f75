"""AntreaNodeConfig: settings of single Nodes."""
