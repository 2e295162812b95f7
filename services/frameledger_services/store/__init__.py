"""The database: its tables, how it comes into its shape, and the statements on it."""
