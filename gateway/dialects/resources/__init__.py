"""Resources that vendors store, in their formats: files, batches and conversations."""
