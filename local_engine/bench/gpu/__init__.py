"""The GPU rows, as fractions of floors that follow from ceilings measured in the same run."""
