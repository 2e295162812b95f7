"""Verifying, proving and rebuilding stored conversations. Nothing here repeats an effect of an old frame."""
