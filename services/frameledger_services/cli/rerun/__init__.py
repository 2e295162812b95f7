"""`frameledger rerun`: recorded moments asked again."""
