"""Everything of Frameledger that does IO. The law is in `frameledger`, which never imports this package."""
