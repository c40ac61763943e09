"""A dispatcher as a store: every verb of the seam over HTTP (contract section 14)."""
