"""The dispatcher: an HTTP service in front of any store, for workers without access to the database (section 14)."""
