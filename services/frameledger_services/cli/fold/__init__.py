"""`frameledger fold`: a file of frames, folded without any server."""
