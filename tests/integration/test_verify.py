"""A real image, unchanged and with planted faults: all faults are found in one run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import smoke_toy
from smoke_toy import Toy, derive

from envbuild import verify
from envbuild.engine.client import Engine
from envbuild.errors import UnknownNameError, VerifyError
from envbuild.model.progress import Progress
from envbuild.verify import leaks, rules
from envbuild.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network]

SYSTEM_PYTHON = "/usr/bin/python3.11"
SITE = "/opt/env/lib/python3.11/site-packages"
RULES = rules.load(Path(__file__).parents[2] / "images")
SECRET = "https://user:hunter2secret@mirror.example/simple"


@pytest.fixture(scope="module")
def toy(engine: Engine, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Toy]:
    made = smoke_toy.make(engine, workspace, tmp_path_factory.mktemp("verify"))
    yield made
    smoke_toy.remove(engine, made)


def differences(engine: Engine, toy: Toy, image: str, **options: object) -> dict[str, str]:
    report = verify.verify(engine, toy.lock, image, base=toy.base, **options)  # type: ignore[arg-type]
    return {problem.where: problem.message for problem in report.problems}


def test_a_built_image_holds_what_its_lock_says(engine: Engine, toy: Toy) -> None:
    seen: list[Progress] = []
    report = verify.verify(
        engine, toy.lock, toy.tag, seen.append, base=toy.base, secrets={"PIP_INDEX_URL": "https://nowhere.example/simple"}
    )
    assert report.require() is report, report.problems
    assert report.counts["distributions"] == 1
    assert report.counts["hashed"] > 800 and report.counts["bytes"] > 40_000_000
    assert report.counts["packages"] > 80 and report.counts["package_files"] > 3000
    assert report.counts["searched_files"] > 5000
    assert report.framework["name"] == "numpy" and report.framework["version"] == toy.lock.environment.frameworks[0].version
    hashing = [news for news in seen if news.message == "comparing files"]
    assert hashing and hashing[-1].done == hashing[-1].total == report.counts["bytes"]


def test_every_planted_fault_is_found_at_once(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    image = derive(
        engine,
        toy,
        tmp_path / "faults",
        f"RUN echo '# edited' >> {SITE}/numpy/version.py",
        f"RUN rm {SITE}/numpy/matlib.py",
        f"RUN cp /opt/envbuild/lock.json {SITE}/stray.json && touch {SITE}/evil.pth",
        f"RUN cp -r {SITE}/numpy-*.dist-info {SITE}/evil-6.6.dist-info && rm {SITE}/evil-6.6.dist-info/RECORD && "
        f"printf 'Name: evil\\nVersion: 6.6\\n' > {SITE}/evil-6.6.dist-info/METADATA",
        "RUN cp /bin/sh /usr/local/bin/becomes-root && chmod 4755 /usr/local/bin/becomes-root",
        "RUN chmod u+s /usr/bin/python3.11",
        "RUN chmod u+s /usr/bin/su && chmod g+s /usr/bin/chage",
        f"RUN cp /bin/true /usr/local/bin/opens-sockets && {SYSTEM_PYTHON} -c 'import os; os.setxattr("
        '"/usr/local/bin/opens-sockets", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))\'',
        "RUN mkdir -m 0777 /opt/anybody && install -m 0666 /dev/null /etc/anybody",
        "RUN echo 'machine mirror.example login me password secret' > /home/envbuild/.netrc",
        "RUN echo '-----BEGIN PRIVATE KEY-----' > /etc/ssl/server.key",
        "RUN echo 'Acquire::http::Proxy \"http://proxy.example:3128\";' > /etc/apt/apt.conf.d/99proxy",
        "RUN echo 'exit 0' >> /usr/bin/ldd",
        "RUN printf '\\n' >> /opt/envbuild/lock.json",
        "RUN rm /usr/local/bin/envbuild-smoke",
        "ENV HTTPS_PROXY=http://proxy.example:3128",
        "LABEL org.envbuild.lock=0000",
        "ENTRYPOINT []",
        "USER root",
    )
    with pytest.raises(VerifyError) as raised:
        verify.verify(engine, toy.lock, image, base=toy.base).require()
    assert raised.value.exit_code == 8
    found = {problem.where: problem.message for problem in raised.value.problems}
    expected = {
        f"{SITE}/numpy/version.py": "modified since it was installed (of numpy)",
        f"{SITE}/numpy/matlib.py": "missing (of numpy)",
        f"{SITE}/stray.json": "belongs to no package",
        f"{SITE}/evil.pth": "belongs to no package",
        "/opt/env: evil": "is installed (6.6), but is not in the lock",
        "/usr/local/bin/becomes-root": "gives extra rights to all users (mode 4755), and belongs to no package",
        "/usr/bin/python3.11": "gives extra rights to all users (mode 4755)",
        "/usr/bin/su": "gives extra rights to all users (mode 4755) (of util-linux)",
        "/usr/bin/chage": "gives extra rights to all users (mode 2755) (of passwd)",
        "/usr/local/bin/opens-sockets": "gives extra rights to all users (a file capability), and belongs to no package",
        "/opt/anybody": "everybody can write to it",
        "/etc/anybody": "everybody can write to it",
        "/home/envbuild/.netrc": "may hold credentials",
        "/etc/ssl/server.key": "is a private key",
        "/etc/apt/apt.conf.d/99proxy": "contains a proxy or a password",
        "/usr/bin/ldd": "modified since the package was installed (of libc-bin)",
        "/opt/envbuild/lock.json": "differs from the given lock",
        "/usr/local/bin/envbuild-smoke": "missing",
        "variable HTTPS_PROXY": "a proxy",
        "label org.envbuild.lock": "found 0000",
        "entrypoint": "expected the init /usr/bin/tini",
        "user": "runs as root",
        "framework": "cannot be started",
    }
    for where, message in expected.items():
        assert message in found.get(where, "nothing"), (where, found)
    assert set(found) == set(expected)


def test_another_version_than_the_locked_one(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    image = derive(
        engine, toy, tmp_path / "version", f"RUN sed -i 's/^Version: .*/Version: 1.0/' {SITE}/numpy-*.dist-info/METADATA"
    )
    report = verify.verify(engine, toy.lock, image, base=toy.base)
    version = toy.lock.environment.frameworks[0].version
    found = {problem.where: problem.message for problem in report.problems}
    assert found == {"/opt/env: numpy": f"expected {version}, found 1.0"}
    assert any("METADATA" in note and "numpy" in note for note in report.notes)


def test_an_edit_of_the_same_size_is_found_by_its_hash(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    library = "$(find /opt/env -name 'libscipy_openblas*' -o -name 'libopenblas*' | head -1)"
    image = derive(engine, toy, tmp_path / "same-size", f"RUN printf X | dd of={library} bs=1 seek=5000000 conv=notrunc")
    assert any("openblas" in where for where in differences(engine, toy, image))


def test_a_secret_is_found_in_a_deleted_layer_and_in_the_configuration(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    image = derive(
        engine,
        toy,
        tmp_path / "leak",
        f"RUN echo 'index-url = {SECRET}' > /etc/pip.conf",
        "RUN rm /etc/pip.conf",
        f"ENV PIP_INDEX_URL={SECRET}",
    )
    secrets = leaks.secret_strings({"envbuild-env": f"export PIP_INDEX_URL={SECRET}\n".encode()})
    found = differences(engine, toy, image, secrets=secrets)
    assert "PIP_INDEX_URL" in found.get("image configuration", "")
    assert "PIP_INDEX_URL" in found.get("/etc/pip.conf", "")
    assert "hunter2secret" not in " ".join([*found, *found.values()])
    assert differences(engine, toy, toy.image, secrets=secrets) == {}


def test_no_program_of_the_base_keeps_a_right_of_its_own(engine: Engine, toy: Toy) -> None:
    """In Debian's base su, mount, passwd and eight other programs are setuid or setgid."""

    def programs(image: str) -> set[str]:
        look = "find / -xdev -type f -perm /6000"
        return set(engine.run(image, ["-c", look], entrypoint=["/bin/sh"], user="0:0", network="none").output.split())

    assert {"su", "mount", "passwd"} <= {path.rpartition("/")[2] for path in programs(toy.base)}
    assert programs(toy.tag) == set()


def test_the_base_is_found_by_the_locks_own_name_too(engine: Engine, toy: Toy) -> None:
    report = verify.verify(engine, toy.lock, toy.image, base="envbuild-test/no-such-base:1")
    assert report.ok, report.problems


def test_an_image_that_cannot_run_python_is_a_difference_not_a_crash(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    image = derive(engine, toy, tmp_path / "no-python", "RUN rm /usr/bin/python3.11")
    found = differences(engine, toy, image)
    assert "/usr/bin/python3.11" in found, found


def test_an_image_that_is_not_there_is_named(engine: Engine, toy: Toy) -> None:
    with pytest.raises(UnknownNameError, match="no-such-image"):
        verify.verify(engine, toy.lock, "envbuild-test/no-such-image:1")


def test_what_was_asked_for_is_imported_and_agrees_with_its_own_requirements(engine: Engine, toy: Toy, tmp_path: Path) -> None:
    """A library of the framework is missing, and its metadata requires a package that is not installed."""
    report = verify.verify(engine, toy.lock, toy.tag, base=toy.base, rules=RULES)
    assert report.ok and report.counts["imported"] == 1
    image = derive(
        engine,
        toy,
        tmp_path / "imports",
        "RUN rm $(find /opt/env -name 'libscipy_openblas*.so' -o -name 'libopenblas*.so')",
        f"RUN sed -i 's/^Version: /Requires-Dist: pickled-cucumber>=2\\nRequires-Dist: nothing; python_version < \"3\"\\n&/' "
        f"{SITE}/numpy-*.dist-info/METADATA",
    )
    found = {p.where: p.message for p in verify.verify(engine, toy.lock, image, base=toy.base, rules=RULES).problems}
    (failed,) = (message for where, message in found.items() if where == "/opt/env: import numpy (numpy)")
    assert "openblas" in failed and "cannot open shared object file" in failed and "package unknown" in failed
    version = toy.lock.environment.frameworks[0].version
    assert found[f"/opt/env: numpy {version}"] == "requires pickled-cucumber>=2, which is not installed"
