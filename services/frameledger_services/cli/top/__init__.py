"""`frameledger top`: live activity of an installation in a terminal."""
