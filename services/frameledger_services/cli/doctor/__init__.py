"""`frameledger doctor`: checks of an installation, each with its finding and remedy."""
