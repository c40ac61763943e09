"""One file, many processes on one machine, the standard library's sqlite3. Read engine.py first, then store.py."""
