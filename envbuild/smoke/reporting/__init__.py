"""Makes the report: its figures, its tables, and the comparison of two reports."""
