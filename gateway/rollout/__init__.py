"""Policy versions and targets on their way into force. Pure."""
