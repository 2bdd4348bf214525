"""The contract of translation: rules, official clients, faults."""
