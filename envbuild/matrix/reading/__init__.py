"""From YAML to the rows of the matrix: strict, with every problem reported at once."""
