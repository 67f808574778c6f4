"""What holds for topics: tenants, namespaces, policies and schemas."""
