"""Starts ranks and watches them: on this machine, on several, and as members of a job that a launcher started."""
