"""The command line: one module per verb."""


def main() -> None:
    """Placeholder until the verbs land."""
    raise SystemExit(2)
