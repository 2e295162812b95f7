"""Who may: everything that stands before the app, and decides who asks, what it may see, and how often."""
