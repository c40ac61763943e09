"""The worker's loop: claim, run, settle; and what keeps it honest. Nothing here knows a store or a transport."""
