"""The nouns, one immutable value per hop: NewTask → Task → Claim → Outcome → Transition → Settled → Event.

No behaviour beyond invariants, no I/O, no clock. Texts named `payload`, `result`, `meta`, `data` are JSON texts here;
the decoded values stand only on the records that people read (Task, Event).
"""
