"""The store on real databases."""
