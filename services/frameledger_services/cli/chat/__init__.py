"""`frameledger chat`: a conversation in a terminal."""
