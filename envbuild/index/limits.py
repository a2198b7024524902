"""All limits for the network: how many bytes a package index may send, and how long to wait for it.

A slow, broken or hostile index must not exhaust the memory or the disk, or take hours.
"""

from __future__ import annotations

# Bytes of a project page. The largest pages, those of nightly builds, have 10 MB. A page that is parsed as JSON takes about 20
# times as much memory as its text.
PAGE_BYTES = 32 * 2**20
# Objects and lists on a page. One file has three or four of them, and the largest projects have 20 000 files.
PAGE_VALUES = 1_000_000
PAGE_FILES = 100_000
# Seconds to parse a page. Usually, 5 MB take one second, but for some malformed pages the HTML parser takes a thousand times as
# long.
PAGE_S = 20.0
# Projects in one run. A lock of every framework in the matrix needs fewer than 1 000. Without this limit, an endless chain of
# packages that each require another one would never end.
PROJECTS = 10_000
# Bytes of a file METADATA that the index serves beside a wheel. The longest of these files have 1 MB, because of their
# descriptions.
SMALL_FILE_BYTES = 8 * 2**20
# Bytes of a file to download. The largest wheels have 4 GB.
FILE_BYTES = 32 * 2**30
# Bytes of the body of a redirect or an error. Such a body is a page for people. A longer body is not read.
REFUSAL_BYTES = 64 * 2**10
URL_LETTERS = 8_000
SPECIFIER_LETTERS = 1_000

# Seconds to connect: enough for a slow proxy, and short enough to report an unreachable index soon.
CONNECT_S = 5.0
# Seconds from a query to the last byte of its answer (a page, a part of a file or a small file), with retries and waits. If
# PIP_TIMEOUT is set, the limit is PATIENT (four) times its value.
ANSWER_S = 60.0
PATIENT = 4
ATTEMPTS = 3
# The longest wait (in seconds) that a busy server may request with Retry-After. During a wait of an hour, the program would
# seem to hang.
RETRY_AFTER_S = 20.0
# A download may take any time, unless it is slower than SLOWEST_BYTES_S (bytes per second) for SLOW_S seconds. 4 kB/s is the
# speed of a modem of the nineties.
SLOWEST_BYTES_S = 4 * 2**10
SLOW_S = 60.0
# Total seconds for reading the metadata of a wheel in parts of the file.
METADATA_S = 180.0
# After this number of failed downloads in a row, the host counts as down for the rest of the run.
BROKEN_DOWNLOADS = 3

# After a wait of QUIET_S seconds, a step reports what it waits for. It repeats this report every REMIND_S seconds.
QUIET_S = 3.0
REMIND_S = 15.0
