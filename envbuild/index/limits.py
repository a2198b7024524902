"""All network limits: how many bytes a package index may send, and how long to wait for them.

A slow, broken or hostile index must not exhaust the memory or the disk, or take hours.
"""

from __future__ import annotations

# The largest project pages, those of nightly builds, have 10 MB; read as JSON they take about 20 times as much memory.
PAGE_BYTES = 32 * 2**20
# Objects and lists on a page: one file has three or four, and the largest projects have 20 000 files.
PAGE_VALUES = 1_000_000
PAGE_FILES = 100_000
# Reading a page takes a second for each 5 MB; the HTML parser needs a thousand times as long for some malformed pages.
PAGE_S = 20.0
# A lock of every framework in the matrix needs fewer than 1 000 projects. Without a limit, an endless chain of packages, each
# requiring another one, would never end.
PROJECTS = 10_000
# METADATA beside a wheel: the longest descriptions have 1 MB.
SMALL_FILE_BYTES = 8 * 2**20
# The largest wheels have 4 GB.
FILE_BYTES = 32 * 2**30
# Redirects and errors come with pages for people; bodies longer than this are not read.
REFUSAL_BYTES = 64 * 2**10
URL_LETTERS = 8_000
SPECIFIER_LETTERS = 1_000

# Long enough for a slow proxy to answer, short enough that an unreachable index is an error within seconds.
CONNECT_S = 5.0
# From the query to the last byte of a page, a part of a file or a small file, with retries and waits. If PIP_TIMEOUT is set,
# the limit is four times its value.
ANSWER_S = 60.0
PATIENT = 4
ATTEMPTS = 3
# The longest wait that a busy server may ask for (Retry-After): during a wait of an hour, the program would seem to hang.
RETRY_AFTER_S = 20.0
# A download may take any time, unless it is slower than this over a minute (4 kB/s is a modem of the nineties).
SLOWEST_BYTES_S = 4 * 2**10
SLOW_S = 60.0
# Total time for a wheel's metadata, if it is read from the wheel in parts.
METADATA_S = 180.0
# After so many failed downloads in a row, a host counts as down for the rest of the run.
BROKEN_DOWNLOADS = 3

# After how many seconds a step reports what it waits for, and how often it repeats that.
QUIET_S = 3.0
REMIND_S = 15.0
