"""What satisfies a request: the builds, what each needs, where they can live, and the order in which they are tried."""
