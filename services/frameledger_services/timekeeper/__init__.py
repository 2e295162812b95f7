"""The timekeeper: finds what is overdue and publishes frames that settle it. The fold has no clock, so it cannot do
this itself.

`sweep` applies every rule once: the statements of `store.overdue` and `claims` find what is overdue, and `settling`
makes the frames (pure). `service` is the process, and `roots` publishes a root at an interval beside it. Several
timekeepers may run; there is no leader.
"""
