"""Provider transport: connections, secrets and deadlines of model requests; it knows no provider's format."""
