SELECT {schema}.write_output($1::text, $2::text, $3::text[], $4::text[], $5::uuid, $6::timestamptz)
