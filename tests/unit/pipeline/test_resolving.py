"""The error for a misspelt request offers only corrections that work."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuild.errors import UnknownNameError
from envbuild.pipeline import resolving
from envbuild.pipeline.constraints import Constraints
from envbuild.pipeline.tools import Tools
from envbuild.workspace import find

ROOT = Path(__file__).parents[3]


def refused(text: str) -> UnknownNameError:
    with pytest.raises(UnknownNameError) as caught:
        resolving.resolve_request(Tools(workspace=find(ROOT)), [text], Constraints())
    return caught.value


@pytest.mark.parametrize(
    ("text", "correction"),
    [
        ("tensorflw-2.21", "tensorflow-2.21"),
        ("hrovod-0.19+tf-1.12", "horovod-0.19+tf-1.12"),
        ("tf-1.12-cudda9", "tf-1.12-cuda9"),
        ("tf-1.12-cudaa9.2", "tf-1.12-cuda9.0"),
        ("tf-1.12+pytorch-1.0-cudaa9.2", "tf-1.12+pytorch-1.0-cuda9.0"),
        ("pytorch-2.5-cudda12", "pytorch-2.5-cuda12"),
    ],
)
def test_a_misspelt_name_is_corrected_in_the_whole_request(text: str, correction: str) -> None:
    error = refused(text)
    offered = [each.name for each in error.alternatives]
    assert offered[0] == correction
    assert error.hint.startswith(f"Did you mean {error.alternatives[0].changes.split()[0]}?")
    for name in offered:
        assert resolving.resolve_request(Tools(workspace=find(ROOT)), [name], Constraints())


@pytest.mark.parametrize("text", ["tensorflw-9.9", "mxnt-1.5-cuda99"])
def test_no_correction_is_offered_that_fails_for_another_reason(text: str) -> None:
    error = refused(text)
    assert error.alternatives == ()
    assert error.hint in ("Did you mean tensorflow?", "Did you mean mxnet?")
