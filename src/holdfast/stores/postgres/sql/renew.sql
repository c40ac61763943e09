UPDATE {schema}.workers SET nonce = $2::bigint WHERE id = $1::text
