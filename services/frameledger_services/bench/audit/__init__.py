"""The bench of audit: verifying, rebuilding, and queries of a conversation's history."""
