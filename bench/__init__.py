"""The benchmarks: workloads, load generator, peers and results."""
