"""The object store: keys, small objects, leases."""
