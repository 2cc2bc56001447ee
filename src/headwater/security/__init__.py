"""Authentication and authorization of clients: TLS, log-ins, tokens, access rules."""
