"""The bench of the gateway: what HTTP adds to the road, beside bare ASGI apps that send the same bytes.

`reads` is the figure of reading contexts, with its clients `readers` and its yardstick `bare_reads`; `streams` is that
of live streams, with `listeners` and `bare_streams`. Clients and yardsticks are processes.
"""
