"""Programs that each use one framework as its readers do, run where that framework is installed."""
