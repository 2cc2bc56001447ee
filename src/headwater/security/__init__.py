"""Who a client is (TLS, SASL, tokens), what it may do and how much it may use."""
