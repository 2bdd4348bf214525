"""The sovereign pool: many replicas behind one provider, chosen by expected time to an answer."""
