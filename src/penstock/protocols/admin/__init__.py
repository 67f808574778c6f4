"""The administrator's door: Pulsar's admin paths, with Pulsar's JSON and statuses."""
