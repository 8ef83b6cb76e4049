"""The benchmark: fixed workloads, a load generator of its own, CPU of every process, exact checks.

A run is a local cluster (or one that runs already), a warm-up, and then each workload as often as
asked, round by round. The numbers of one run stand in one `Measurement`; the table shows medians
with the smallest and the largest value. What was not measured is shown as such, never as 0.
"""
