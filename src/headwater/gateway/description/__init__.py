"""The OpenAPI document of the HTTP API, made from the handlers, and a page that shows it."""
