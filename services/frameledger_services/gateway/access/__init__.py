"""Access control: the middleware before the app that decides who the caller is, what it may read, and how often."""
