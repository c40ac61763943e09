INSERT OR IGNORE INTO holdfast_tokens (id, name, scopes, digest, created_at, expires_at)
VALUES (:id, :name, :scopes, :digest, :now, :expires_at)
