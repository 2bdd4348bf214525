"""The audit log as people explore it, and the checks that it is whole."""
