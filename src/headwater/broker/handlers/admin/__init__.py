"""Topics, configs, quotas, users and access rules."""
