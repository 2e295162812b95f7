"""The timekeeper owns time, which the fold does not have: it finds what is overdue and publishes frames that settle it.

`look` is one look, rule by rule: `questions` and `unstarted` ask Postgres, `settling` makes the frames (pure), and
`service` is the process. Several may run; none of them leads.
"""
