"""Files and batches: their lines, whose turn it is, and parcels for vendors."""
