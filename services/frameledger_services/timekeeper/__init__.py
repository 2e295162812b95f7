"""The timekeeper owns time, which the fold does not have: it finds what is overdue and publishes frames that settle it.

`sweep` applies every rule once: the statements of `store.overdue` and `claims` find what is overdue, and `settling`
makes the frames (pure). `service` is the process, and `roots` publishes a root at an interval beside it. Several may
run; none of them leads.
"""
