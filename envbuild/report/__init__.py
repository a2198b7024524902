"""A smoke report as a table, Markdown, JUnit XML, one HTML page; and two reports compared. Pure: values in, text out."""
