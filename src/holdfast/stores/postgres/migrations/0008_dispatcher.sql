-- Who may call a dispatcher, and workers that work through one.

CREATE TABLE {schema}.tokens (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    name text COLLATE "C" NOT NULL,
    scopes text[] COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz
);

-- Nothing here can show whether a remote worker lives: its `nonce` is empty.
ALTER TABLE {schema}.workers ADD COLUMN remote boolean NOT NULL DEFAULT false;
