"""The value of `valid_to` in rows that are currently valid."""

FOR_EVER = 2**63 - 1
"""`valid_to` of a message that is still valid, so that `valid_from <= v AND v < valid_to` needs no special case."""
