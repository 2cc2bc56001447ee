"""The state of domain 0: processes, topics, configs, quotas, users and access rules."""
