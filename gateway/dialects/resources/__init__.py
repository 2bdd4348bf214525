"""What vendors store besides answers, in their formats: files, batches, conversations."""
