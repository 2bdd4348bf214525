"""What shows others that a log is whole: trees, checkpoints, packs, and their verifiers."""
