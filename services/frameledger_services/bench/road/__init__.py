"""The bench of the path from publish to SQL: real servers, and a yardstick for every figure.

Our side of a figure is the product as it is run. Its yardstick is the minimum that does the same without any
guarantees: `straight_line` for throughput, `bare_road` for latency, bare tables for sizes and reading. Both run
alternately on the same servers. `figures` lists all measurements, `servers` provides the servers, `stream` generates
the input.
"""
