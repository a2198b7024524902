"""Update the matrix, locks and renderings of a checkout as one set, which becomes a git branch or nothing."""
