"""The sovereign pool: many replicas behind one provider, chosen by the time each would need."""
