"""The engine before an Apache Pulsar cluster: entries pass through, and everything that is kept is the cluster's."""
