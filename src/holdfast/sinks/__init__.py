"""Those who are told: one module per kind, chosen by the scheme of a sink's URL (open.py), each a Channel."""
