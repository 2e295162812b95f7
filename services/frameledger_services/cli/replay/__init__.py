"""`frameledger replay`: a conversation played again."""
