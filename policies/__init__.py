"""Pure routing policy: which target may answer, in which order, under which obligations."""
