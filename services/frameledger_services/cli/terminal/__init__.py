"""Shared parts of commands: output, exit on error, queries, options, and text for people."""
