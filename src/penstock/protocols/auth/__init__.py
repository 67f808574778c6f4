"""Authentication and authorization: credentials, keys, tokens, passwords, certificates, permissions.

The one package that imports `jwt` and `cryptography`, and only if tokens are used or certificates are looked into.
"""
