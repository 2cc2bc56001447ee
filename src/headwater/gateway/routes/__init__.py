"""The calls of the HTTP API, one module a family. `headwater.gateway.application` lists them."""
