"""The system room: workers and configuration, sinks, diagnostics."""
