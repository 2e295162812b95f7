"""Everything of Frameledger that does IO. The frames and the fold are in `frameledger`, which never imports this
package."""
