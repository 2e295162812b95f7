"""The bench of functions: how long a call takes from its dispatch to its result in SQL, and what a crowd of slow ones
weighs. `tools` are the functions that are called, `asking` the conversations that call them without any model.
"""
