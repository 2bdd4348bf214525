"""The GPU rows, as fractions of limits that were measured in the same run."""
