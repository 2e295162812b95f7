"""`frameledger replay`: playback of a conversation."""
