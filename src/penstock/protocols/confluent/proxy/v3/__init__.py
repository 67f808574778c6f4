"""Version 3 of the REST proxy's API: reads of the cluster, and produce, one record after the other over one request."""
