"""What it takes to ask what happened: verifying, rebuilding, and reading a conversation's past."""
