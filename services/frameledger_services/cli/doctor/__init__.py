"""`frameledger doctor`: checks, each with what it found and what to do about it."""
