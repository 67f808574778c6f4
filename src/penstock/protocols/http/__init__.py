"""HTTP for every endpoint: one exchange, one error renderer, one reader of parameters, one long poll, OpenAPI."""
