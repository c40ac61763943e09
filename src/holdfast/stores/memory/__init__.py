"""The reference: everything in this process, nothing durable. Read this store first."""
