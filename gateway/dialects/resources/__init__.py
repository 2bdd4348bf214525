"""What vendors keep beside answers, in their words: files, batches, conversations."""
