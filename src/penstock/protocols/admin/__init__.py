"""The administrator's endpoint: Pulsar's admin paths, with Pulsar's JSON and statuses."""
