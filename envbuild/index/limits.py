"""All limits on the network: how many bytes a package index may send, and how long to wait for them.

An index may be slow, broken or hostile; none of these may take all memory, all disk or all day.
"""

from __future__ import annotations

# The largest project pages, those of nightly builds, have 10 MB; read as JSON they take about 20 times as much memory.
PAGE_BYTES = 32 * 2**20
# Objects and lists on a page: one file has three or four, and the largest projects have 20 000 files.
PAGE_VALUES = 1_000_000
PAGE_FILES = 100_000
# Reading a page takes a second for each 5 MB; some nonsense takes the HTML parser a thousand times as long.
PAGE_S = 20.0
# A lock of every framework that the matrix knows asks for fewer than 1 000 projects. Without a limit, packages that each
# require another one that nobody knew before would go on for ever.
PROJECTS = 10_000
# METADATA beside a wheel: the longest descriptions have 1 MB.
SMALL_FILE_BYTES = 8 * 2**20
# The largest wheels have 4 GB.
FILE_BYTES = 32 * 2**30
# Redirects and refusals have pages for people; what is longer is not read.
REFUSAL_BYTES = 64 * 2**10
URL_LETTERS = 8_000
SPECIFIER_LETTERS = 1_000

# Long enough for a slow proxy to answer, short enough that an unreachable index is an error within seconds.
CONNECT_S = 5.0
# From the question to the last byte of a page, a part of a file or a small file, retries and waits included. Whoever tells pip
# to be more patient (PIP_TIMEOUT) gets four times that.
ANSWER_S = 60.0
PATIENT = 4
ATTEMPTS = 3
# Servers that are busy say how long to wait (Retry-After); one hour would look as if the program hung.
RETRY_AFTER_S = 20.0
# A download goes on as long as it takes, unless it is slower than this over a minute: 4 kB/s is a modem of the nineties.
SLOWEST_BYTES_S = 4 * 2**10
SLOW_S = 60.0
# What a wheel's metadata may take in all, if it is read from the wheel in parts.
METADATA_S = 180.0
# Downloads that break off one after the other before a host counts as down for the rest of the run.
BROKEN_DOWNLOADS = 3

# After how long a step says what it waits for, and how often again.
QUIET_S = 3.0
REMIND_S = 15.0
