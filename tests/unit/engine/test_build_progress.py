"""Builders' plain output as it really was (Docker 20.10 and buildx 0.13), fed line by line."""

from __future__ import annotations

import pytest

from envbuild.engine.build_progress import PlainProgress, count_steps, instruction_of
from envbuild.model.progress import Progress

DOCKER_20 = """\
#1 [internal] load build definition from Dockerfile
#1 sha256:10777e091036fb395819ba0ec74983c492c944def96c51376eddcce3a0372899
#1 transferring dockerfile: 261B done
#1 DONE 0.0s

#3 [internal] load metadata for registry.example/library/debian:12
#3 DONE 0.0s

#4 [os 1/2] FROM registry.example/library/debian:12
#4 CACHED

#5 [os 2/2] RUN echo one; sleep 1
#5 0.163 one
#5 DONE 1.2s

#9 [python 3/3] RUN --mount=type=secret,id=foo,required=false cat /run/secrets/foo | wc -c; exit 3
#9 0.263 400000
#9 0.263 err
#9 ERROR: executor failed running [/bin/sh -c cat /run/secrets/foo | wc -c; exit 3]: exit code: 3
------
 > [python 3/3] RUN --mount=type=secret,id=foo,required=false cat /run/secrets/foo | wc -c; exit 3:
------
executor failed running [/bin/sh -c cat /run/secrets/foo | wc -c; exit 3]: exit code: 3
"""


BUILDX = """\
#0 building with "default" instance using docker driver

#5 [1/3] FROM registry.example/library/debian:12@sha256:aa
#5 resolve registry.example/library/debian:12@sha256:aa done
#5 sha256:bb 5.24MB / 48.49MB 0.3s
#5 sha256:bb 48.49MB / 48.49MB 1.1s done
#5 DONE 2.0s

#6 [2/3] RUN false
#6 ERROR: process "/bin/sh -c false" did not complete successfully: exit code: 1

#7 [3/3] RUN sleep 100
#7 CANCELED
------
 > [2/3] RUN false:
------
ERROR: failed to solve: process "/bin/sh -c false" did not complete successfully: exit code: 1
"""


def fed(text: str, total: int | None = None) -> tuple[PlainProgress, list[Progress]]:
    news: list[Progress] = []
    progress = PlainProgress(news.append, total=total)
    for line in text.splitlines():
        progress.feed(line)
    return progress, news


def test_steps_are_counted_and_named():
    progress, news = fed(DOCKER_20, total=5)
    assert (progress.steps, progress.cached) == (2, 1)
    told = [(n.message, n.done, n.total) for n in news if n.unit == "steps"]
    assert ("os: RUN echo one; sleep 1 (1.2 s)", 2.0, 5.0) in told
    assert ("os: FROM registry.example/library/debian:12 (cached)", 1.0, 5.0) in told


def test_the_failing_step_keeps_its_words():
    progress, news = fed(DOCKER_20)
    assert progress.failed.startswith("[python 3/3] RUN --mount")
    assert progress.reason.endswith("exit code: 3")
    assert progress.tail == ["400000", "err"]
    assert [n.message for n in news if n.log] == ["one", "400000", "err"]


def test_a_cancelled_neighbour_is_not_the_failure():
    progress, _ = fed(BUILDX)
    assert progress.failed == "[2/3] RUN false"
    assert progress.reason.startswith('process "/bin/sh -c false"')


def test_bytes_of_a_pull():
    _, news = fed(BUILDX)
    pulled = [(n.done, n.total) for n in news if n.unit == "bytes"]
    assert pulled == [(5.24e6, 48.49e6), (48.49e6, 48.49e6)]


def test_the_total_never_falls_behind():
    _, news = fed(DOCKER_20, total=1)
    assert all(n.total is None or n.total >= (n.done or 0) for n in news if n.unit == "steps")


def test_a_builder_that_fails_without_a_step():
    progress, _ = fed("failed to solve with frontend dockerfile.v0: dockerfile parse error line 3: unknown instruction: FRUN")
    assert progress.failed == ""
    assert "FRUN" in progress.reason
    assert progress.tail == [progress.reason]


def test_mount_options_and_preambles_are_left_out_of_a_step_for_people():
    name = "[os 2/9] RUN --mount=type=secret,id=a if [ -f /a ]; then . /a; fi; set -eux; export A=/b C=d; apt-get update"
    assert instruction_of(name) == "os: RUN apt-get update"


@pytest.mark.parametrize(
    ("dockerfile", "steps"),
    [
        ("FROM a\nRUN b\nCOPY c d\nENV e=f\nWORKDIR /g\n", 4),
        ("ARG X=a\nFROM ${X} AS one\nRUN b \\\n  && RUN\nFROM one\nRUN c\n", 3),
        ("# RUN not\nFROM a as b\nFROM --platform=linux/amd64 c AS d\nfrom D\nrun x\n", 3),
        ("FROM a\nRUN one \\\n# a comment inside\n  two\n", 2),
    ],
)
def test_counting_the_steps_of_a_dockerfile(dockerfile, steps):
    assert count_steps(dockerfile) == steps
