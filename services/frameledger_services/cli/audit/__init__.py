"""Audit commands: history, provenance of messages, and verification of stored data."""
