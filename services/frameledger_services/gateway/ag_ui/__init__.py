"""AG-UI 1.0 (https://docs.ag-ui.com/spec/1.0): conversations as a front end's agent, over HTTP and server-sent events.

`translation` and `messages` are pure: frames and stored messages in, events of the protocol out. `run_input` parses a
client's request, and `routes` answers it.
"""
