"""What is trained on: files that a user gave, or images made here; and the workloads that name both."""
