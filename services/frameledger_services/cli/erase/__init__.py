"""`frameledger erase`: permanent deletion of a conversation."""
