"""The broker: topics, subscriptions, schemas and requests. No sockets, no files, no frameworks, no wire."""
