"""The report: its figures, its tables, what differs between two."""
