-- Holdfast: the rights of producers, workers and viewers on schema {schema}.
-- For its owner, who needs CREATEROLE the first time: psql -X -1 -v ON_ERROR_STOP=1 -f this.sql
-- Can be run again, and should be after every migration. Then: GRANT holdfast_worker TO your_login;

DO $roles$
DECLARE
    wanted text;
    -- Whoever knows the first two could settle in the name of another; the third lets one repeat another's claim. The
    -- last two sign what webhooks are told, and are what tokens of a dispatcher are compared with.
    secrets CONSTANT text[] := ARRAY['token', 'settled_token', 'claim_id', 'nonce', 'secret', 'digest'];
    path CONSTANT text := pg_catalog.current_setting('search_path');
    listed record;
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

    FOREACH wanted IN ARRAY ARRAY['holdfast_producer', 'holdfast_worker', 'holdfast_viewer'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;

    REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;
    REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM PUBLIC, holdfast_producer, holdfast_worker, holdfast_viewer;
    REVOKE ALL ON ALL SEQUENCES IN SCHEMA {schema} FROM PUBLIC, holdfast_producer, holdfast_worker, holdfast_viewer;
    REVOKE ALL ON ALL ROUTINES IN SCHEMA {schema} FROM PUBLIC, holdfast_producer, holdfast_worker, holdfast_viewer;
    GRANT USAGE ON SCHEMA {schema} TO holdfast_producer, holdfast_worker, holdfast_viewer;

    -- Workers: every row, no table.
    GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO holdfast_worker;
    REVOKE INSERT, UPDATE, DELETE ON {schema}.migrations FROM holdfast_worker;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO holdfast_worker;
    GRANT EXECUTE ON ALL ROUTINES IN SCHEMA {schema} TO holdfast_worker;

    -- Everybody looks, but not at secrets. A right on columns outlives a REVOKE on their table, so it is taken first.
    FOR listed IN
        SELECT
            c.oid::regclass AS name,
            string_agg(quote_ident(a.attname), ', ') AS every,
            string_agg(quote_ident(a.attname), ', ') FILTER (WHERE a.attname <> ALL (secrets))
                AS shown
        FROM pg_class AS c
        JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
        WHERE c.relnamespace = '{schema}'::regnamespace AND c.relkind IN ('r', 'p')
        GROUP BY c.oid
    LOOP
        EXECUTE format(
            'REVOKE ALL (%s) ON %s FROM holdfast_producer, holdfast_viewer', listed.every, listed.name
        );
        EXECUTE format(
            'GRANT SELECT (%s) ON %s TO holdfast_producer, holdfast_viewer', listed.shown, listed.name
        );
    END LOOP;

    -- Producers: new tasks, with their events, counts and notes, what they pin, and what sinks are told of them.
    GRANT INSERT ON {schema}.tasks, {schema}.edges, {schema}.buckets, {schema}.pins, {schema}.events, {schema}.outbox,
        {schema}.counts, {schema}.late
        TO holdfast_producer;
    GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO holdfast_producer;
    GRANT EXECUTE ON ALL ROUTINES IN SCHEMA {schema} TO holdfast_producer;
    PERFORM set_config('search_path', path, true);
END
$roles$;
