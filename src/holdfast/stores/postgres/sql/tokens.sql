SELECT id, name, scopes, digest, created_at, expires_at, revoked_at FROM {schema}.tokens ORDER BY seq
