"""The replicated state machine: a function of committed entries, and of nothing else."""
