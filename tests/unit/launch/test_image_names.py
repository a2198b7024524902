"""Names of images on other hosts."""

import dataclasses

import pytest
from launch_orders import LAUNCHERS, PLAIN, text_of

from envbuild.errors import UsageError
from envbuild.launch.hosts import read_hosts
from envbuild.launch.image_names import enroot_image, has_registry, require_reachable
from envbuild.launch.launchers import choose

DIGEST = "sha256:" + "a" * 64


@pytest.mark.parametrize(
    ("image", "enroot"),
    [
        ("registry.example/team/envbuild:x", "registry.example#team/envbuild:x"),
        ("registry.example:5000/envbuild:x", "registry.example:5000#envbuild:x"),
        ("localhost/envbuild:x", "localhost#envbuild:x"),
        ("team/envbuild:x", "team/envbuild:x"),
        ("envbuild:x", "envbuild:x"),
        (f"registry.example/envbuild:x@{DIGEST}", f"registry.example#envbuild:{DIGEST}"),
        (f"registry.example:5000/envbuild@{DIGEST}", f"registry.example:5000#envbuild:{DIGEST}"),
        ("registry.example#team/envbuild:x", "registry.example#team/envbuild:x"),
        ("/shared/envbuild.sqsh", "/shared/envbuild.sqsh"),
        ("dockerd://envbuild:x", "dockerd://envbuild:x"),
    ],
)
def test_pyxis_gets_images_in_enroots_form(image, enroot):
    assert enroot_image(image) == enroot
    text = text_of(*choose(LAUNCHERS, "slurm", "pyxis"), dataclasses.replace(PLAIN, image=image))
    assert f"--container-image={enroot}" in text.replace("'", "")


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("registry.example/x:1", True),
        ("registry.example:5000/x:1", True),
        ("envbuild:x", False),
        ("team/x", False),
        ("localhost:5000/x", False),
        ("127.0.0.1:5000/x", False),
        ("localhost/x:1", False),
    ],
)
def test_images_that_only_this_machine_has_are_refused(image, known):
    launcher, kind = choose(LAUNCHERS, "torchrun", "docker")
    assert has_registry(image) == known
    if known:
        require_reachable(launcher, kind, image, PLAIN.hosts)
        return
    with pytest.raises(UsageError) as refused:
        require_reachable(launcher, kind, image, PLAIN.hosts)
    assert refused.value.code == "image-not-shared" and "--registry" in refused.value.hint
    require_reachable(launcher, kind, image, read_hosts("localhost:2"))
    require_reachable(launcher, kind, image, read_hosts("me:2"), here=("me",))
    require_reachable(*choose(LAUNCHERS, "torchrun", "inside"), image, PLAIN.hosts)
