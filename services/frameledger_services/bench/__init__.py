"""Benches: how fast the parts are, each figure against a yardstick that is measured in the same run.

A figure alone says more about the machine than about the code; a ratio of two that were taken in turns can be held to
a goal anywhere. `report` is the form that all benches share, `timing` how two things are compared, and the others are
one bench each.
"""
