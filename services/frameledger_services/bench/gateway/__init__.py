"""The bench of the gateway: what HTTP adds to the road, beside bare ASGI apps that send the same bytes.

`streams` is the figure of live streams, `listeners` their clients and `bare_streams` their yardstick, each a process.
"""
