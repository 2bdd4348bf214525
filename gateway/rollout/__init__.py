"""Rollout of policy versions and targets, until they are in force. Pure."""
