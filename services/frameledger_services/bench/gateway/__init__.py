"""The bench of the gateway: what HTTP adds to the road, compared with `Client` and with bare ASGI apps that send the
same bytes.

`appends` measures appending, compared with `Client`. `reads` measures reading contexts, with the clients in `readers`
and the yardstick `bare_reads`. `streams` measures live streams, with the clients in `listeners` and the yardstick
`bare_streams`. Clients and yardsticks of the latter two are separate processes.
"""
