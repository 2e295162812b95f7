"""The value of `valid_to` in rows that are valid now."""

FOR_EVER = 2**63 - 1
"""`valid_to` of a message that is still valid: `valid_from <= v AND v < valid_to` needs no case of its own."""
