"""The bench of the gateway: what HTTP adds to the road, beside a client of Kafka's own and bare ASGI apps that send the
same bytes.

`appends` is the figure of appending, beside `Client`; `reads` is that of reading contexts, with its clients `readers`
and its yardstick `bare_reads`; `streams` is that of live streams, with `listeners` and `bare_streams`. Clients and
yardsticks of the latter two are processes.
"""
