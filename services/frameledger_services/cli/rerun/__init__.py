"""`frameledger rerun`: recorded runs, repeated and compared."""
