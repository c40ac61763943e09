"""The command line: parses, calls the app, renders. It decides nothing about tasks and holds no SQL."""
