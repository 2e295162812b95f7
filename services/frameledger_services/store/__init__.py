"""The database: its tables, its schema check, and the statements. `README.md` lists the modules."""
