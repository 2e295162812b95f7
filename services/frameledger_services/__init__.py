"""All of Frameledger's IO. The frames and the fold are in `frameledger`, which never imports this package."""
