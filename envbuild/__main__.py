"""``python -m envbuild``: the same program as the ``envbuild`` command."""

from envbuild.cli import main

main()
