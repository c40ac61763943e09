"""Measures a store and its worker on this machine, beside the floor of the same run: machines differ, ratios less."""
