"""Benchmarks: each figure is compared with a yardstick that is measured in the same run.

A figure alone depends on the machine; the ratio of two that were measured alternately can have a goal on any machine.
`report` has the format that all benches share, `timing` the comparison of two works, and each other module or folder is
a bench.
"""
