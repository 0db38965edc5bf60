"""The servers of the topology as local processes: for the demo, tests and benchmarks. Loopback only."""
