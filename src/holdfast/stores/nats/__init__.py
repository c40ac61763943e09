"""The store for people who outgrow one database machine: NATS JetStream. See ADR 17 and store.py."""
