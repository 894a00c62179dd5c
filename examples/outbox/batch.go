package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// doubtMax is how old a batch may be when it is sent again. Seb remembers the idempotency key of a
// batch for 24 hours after the batch was appended. doubtMax is an hour less, because a request may
// take a while, and clocks may differ.
const doubtMax = 23 * time.Hour

// batch has rows of one topic that are sent together, with one idempotency key. The
// table outbox_batches has a row for each batch. While a topic has a batch there, no
// other batch of the topic is made.
type batch struct {
	topic string
	id    string // a UUID
	rows  []int64
	fresh bool // the batch was made just now, so it was certainly not sent before
	stale bool // the batch is older than doubtMax
	more  bool // the outbox had more new rows than were put into batches
}

// key is the batch's idempotency key.
func (b batch) key() string { return "outbox-" + b.id }

func (b batch) String() string {
	if len(b.rows) == 0 {
		return fmt.Sprintf("batch %s without rows", b.id)
	}
	return fmt.Sprintf("batch %s of %d rows, id %d to %d", b.id, len(b.rows), b.rows[0], b.rows[len(b.rows)-1])
}

// record is a row in the JSON form of the broker.
type record struct {
	Key       *string           `json:"key,omitempty"`
	Value     []byte            `json:"value_base64"`
	Headers   map[string]string `json:"headers"`
	Timestamp time.Time         `json:"timestamp"`
}

// makeBatches makes a batch of the oldest rows for each topic that has no batch. It looks at all rows, not
// only at rows with ids above the ids of earlier batches: a row may become visible after rows with higher
// ids. No row of such a topic has been moved yet: finish deletes the moved rows together with their batch.
func (s *session) makeBatches(ctx context.Context, most limits, except []string) ([]batch, error) {
	const query = `
		WITH oldest AS (
			SELECT topic, id,
				count(*) OVER (ORDER BY id) AS count,
				sum(octet_length(value::text) + octet_length(coalesce(key, '')) + octet_length(coalesce(headers::text, '')))
					OVER (ORDER BY id) AS bytes
			FROM (
				SELECT * FROM outbox
				WHERE topic NOT IN (SELECT topic FROM outbox_batches) AND topic <> ALL (coalesce($3::text[], '{}'))
				ORDER BY id LIMIT $1
			) AS rows
		)
		INSERT INTO outbox_batches (topic, row_ids)
		SELECT topic, array_agg(id ORDER BY id) FROM oldest
		WHERE bytes <= $2 OR count = 1
		GROUP BY topic
		ON CONFLICT (topic) DO NOTHING
		RETURNING topic, id::text, row_ids, true, false, (SELECT count(*) = $1 OR max(bytes) > $2 FROM oldest)`
	batches, err := s.batches(ctx, query, most.rows, most.bytes, except)
	if err != nil {
		return nil, fmt.Errorf("make batches of new rows: %w", err)
	}
	return batches, nil
}

// oldBatches returns the batches that were made earlier, by this or by another drainer.
// They may have been sent, and have to be sent again.
func (s *session) oldBatches(ctx context.Context, except []string) ([]batch, error) {
	const query = `
		UPDATE outbox_batches SET tries = tries + 1 WHERE topic <> ALL (coalesce($2::text[], '{}'))
		RETURNING topic, id::text, row_ids, false, created < now() - make_interval(secs => $1), false`
	batches, err := s.batches(ctx, query, doubtMax.Seconds(), except)
	if err != nil {
		return nil, fmt.Errorf("read the batches that may have been sent: %w", err)
	}
	return batches, nil
}

func (s *session) batches(ctx context.Context, query string, args ...any) ([]batch, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	rows, err := s.conn.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b batch, err error) {
		return b, row.Scan(&b.topic, &b.id, &b.rows, &b.fresh, &b.stale, &b.more)
	})
}

// records returns the records of a batch, in order. The list is empty if another drainer
// has finished the batch meanwhile, or somebody has deleted the rows.
func (s *session) records(ctx context.Context, b batch) ([]record, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	const query = `SELECT id::text, key, value, coalesce(headers, '{}'), created FROM outbox WHERE id = ANY ($1) ORDER BY outbox.id`
	rows, err := s.conn.Query(ctx, query, b.rows)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", b, err)
	}
	records, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r record, err error) {
		var id string
		if err := row.Scan(&id, &r.Key, &r.Value, &r.Headers, &r.Timestamp); err != nil {
			return r, err
		}
		r.Timestamp = r.Timestamp.UTC()
		r.Headers["outbox-id"] = id // tells readers and operators which row the record comes from
		return r, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", b, err)
	}
	return records, nil
}

// finish deletes batches whose records are in their topics, and the rows of these batches.
// One statement deletes both, so that no later batch can take the same rows.
func (s *session) finish(ctx context.Context, batches []batch) error {
	const query = `
		WITH done AS (DELETE FROM outbox_batches WHERE id::text = ANY ($1) RETURNING row_ids)
		DELETE FROM outbox WHERE id IN (SELECT unnest(row_ids) FROM done)`
	return s.settle(ctx, "delete what was moved", query, batches)
}

// release deletes fresh batches whose records are certainly not in their topics, so that the rows can
// be put into other batches. It keeps a batch that another drainer has tried to send too: the
// database may have given the lock to that drainer, although this drainer still runs.
func (s *session) release(ctx context.Context, batches []batch) error {
	const query = `DELETE FROM outbox_batches WHERE id::text = ANY ($1) AND tries = 1`
	return s.settle(ctx, "take back what was not moved", query, batches)
}

func (s *session) settle(ctx context.Context, what, query string, batches []batch) error {
	if len(batches) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	var ids []string
	for _, b := range batches {
		ids = append(ids, b.id)
	}
	if _, err := s.conn.Exec(ctx, query, ids); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
