"""Formats a smoke report as a table, Markdown, JUnit XML or an HTML page, and compares two reports. Pure: values in, text
out."""
