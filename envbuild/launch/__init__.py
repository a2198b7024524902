"""Runs on several machines: renders what each launcher is told, from the data in images/launchers/."""
