"""The bench of functions: the latency of a call from its dispatch to its result in SQL, and the memory of a worker with
many slow calls.

`tools` are the functions that are called, `asking` the conversations that call them without a model.
"""
