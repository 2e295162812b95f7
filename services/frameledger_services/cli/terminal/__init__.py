"""What commands share: output, exit on error, queries, options, and text for people."""
