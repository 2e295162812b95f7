"""`frameledger export` and `import`: conversations as files."""
