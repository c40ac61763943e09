"""Connections of callers, of whatever driver, for stores that write in their transactions (contract C4.4, C7.6)."""
