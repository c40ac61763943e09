SELECT id, name, scopes, digest, created_at, expires_at, revoked_at FROM holdfast_tokens WHERE id = :id
