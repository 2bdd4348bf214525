"""The sovereign pool: many replicas behind one provider, chosen by what each would take longest."""
