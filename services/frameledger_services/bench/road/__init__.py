"""The bench of the path from publish to SQL: real servers, and a yardstick for every figure.

Our side of a figure is the product as it is run. Its yardstick is the least that does the same without any promise:
`straight_line` for throughput, `bare_road` for latency, bare tables for sizes and reading. Both take turns on the same
servers. `figures` is the list of all, `servers` where they run, `stream` what they are fed with.
"""
