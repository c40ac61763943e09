UPDATE holdfast_tokens SET revoked_at = coalesce(revoked_at, :now) WHERE id = :id
