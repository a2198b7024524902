"""Settings of batch systems on the command line."""

import pytest

from envbuild.errors import UsageError
from envbuild.launch.settings import (
    Toleration,
    read_label,
    read_memory,
    read_sbatch,
    read_time,
    read_toleration,
    read_word,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("", 0), ("30", 1800), ("90s", 90), ("30m", 1800), ("2h", 7200), ("1d", 86400), ("1:30:00", 5400), ("1-12:00:00", 129600)],
)
def test_time_limits(text, seconds):
    assert read_time(text) == seconds


@pytest.mark.parametrize("text", ["0", "soon", "-1h", "1:70:00", "0:00:00", "1w", "2h\n"])
def test_malformed_time_limits_are_refused(text):
    with pytest.raises(UsageError):
        read_time(text)


@pytest.mark.parametrize(
    ("text", "mib"), [("", 0), ("64G", 65536), ("64Gi", 65536), ("500M", 500), ("1T", 1048576), ("2gb", 2048)]
)
def test_sizes(text, mib):
    assert read_memory(text) == mib


@pytest.mark.parametrize("text", ["0G", "64", "lots", "1.5G", "64G\n"])
def test_malformed_sizes_are_refused(text):
    with pytest.raises(UsageError):
        read_memory(text)


@pytest.mark.parametrize(
    ("text", "toleration"),
    [
        ("nvidia.com/gpu", Toleration(key="nvidia.com/gpu", value="", effect="")),
        ("nvidia.com/gpu:NoSchedule", Toleration(key="nvidia.com/gpu", value="", effect="NoSchedule")),
        ("queue=night:NoExecute", Toleration(key="queue", value="night", effect="NoExecute")),
        ("*", Toleration(key="", value="", effect="")),
    ],
)
def test_tolerations(text, toleration):
    assert read_toleration(text) == toleration


@pytest.mark.parametrize("text", ["", "a:Never", "a=", "=b", "a b", "*=x", "a:"])
def test_malformed_tolerations_are_refused(text):
    with pytest.raises(UsageError):
        read_toleration(text)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (lambda text: read_word("partition", text), "gpu\n#SBATCH --x"),
        (lambda text: read_word("account", text), "a b"),
        (lambda text: read_label("namespace", text), "Upper"),
        (lambda text: read_label("namespace", text), "a: b"),
        (read_sbatch, "qos=high"),
        (read_sbatch, "--qos=high\nrm -rf /"),
    ],
)
def test_a_setting_cannot_add_lines_of_its_own(read, text):
    with pytest.raises(UsageError):
        read(text)
