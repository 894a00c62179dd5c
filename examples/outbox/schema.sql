-- The outbox: an application inserts its events here, in the transaction that
-- changes its data. Nobody changes a row after that. The program deletes the
-- row once the row's record is in its topic.
CREATE TABLE outbox (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    topic   text NOT NULL CHECK (topic ~ '^[a-zA-Z0-9._-]{1,249}$' AND topic NOT IN ('.', '..')),
    key     text CHECK (octet_length(key) <= 65536), -- events of one key stay in order
    value   jsonb NOT NULL CHECK (octet_length(value::text) <= 4194304), -- or text, or bytea
    headers jsonb CHECK (jsonb_typeof(headers) = 'object' AND NOT headers @? '$.* ? (@.type() != "string")'
                         AND octet_length(headers::text) <= 65536),
    created timestamptz NOT NULL DEFAULT now() CHECK (isfinite(created))
);

-- The batches that are on their way to Seb: at most one for each topic. Before
-- the program sends a batch, it stores here which rows the batch has. Every
-- attempt has the same idempotency key: 'outbox-' followed by the batch's id.
CREATE TABLE outbox_batches (
    topic   text PRIMARY KEY,
    id      uuid NOT NULL DEFAULT gen_random_uuid(),
    row_ids bigint[] NOT NULL,
    tries   int NOT NULL DEFAULT 1,
    created timestamptz NOT NULL DEFAULT now()
);

-- Wakes the program at once. Without it, the program polls every second.
CREATE FUNCTION outbox_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NOTIFY outbox;
    RETURN NULL;
END
$$;
CREATE TRIGGER outbox_notify AFTER INSERT ON outbox FOR EACH STATEMENT EXECUTE FUNCTION outbox_notify();
