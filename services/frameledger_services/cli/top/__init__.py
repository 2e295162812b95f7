"""`frameledger top`: the whole installation, live in a terminal."""
