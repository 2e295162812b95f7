"""`frameledger publish`: frames from arguments, files or standard input."""
