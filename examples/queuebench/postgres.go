package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/simple-event-broker/seb/examples/internal/servers"
)

// jobs creates the usual table of jobs. A worker may take a row, for the first time or again, from the
// time run_at on. Workers find the next rows by the index.
const jobs = `
	DROP TABLE IF EXISTS queuebench;
	CREATE TABLE queuebench (
		id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
		run_at   timestamptz NOT NULL DEFAULT now(),
		attempts int NOT NULL DEFAULT 0,
		payload  bytea NOT NULL
	);
	CREATE INDEX ON queuebench (run_at, id)`

// postgres is a table of jobs in a PostgreSQL server.
type postgres struct {
	url    string
	own    *servers.Postgres // the server that this program has started; nil if it uses a running server
	leased bool
}

// openLocked opens the side whose workers keep their rows locked, in an open
// transaction, until the rows are done. A message takes one commit, the least that is
// possible. But each worker needs a connection while it works, and the open
// transaction holds up VACUUM.
func openLocked(ctx context.Context, o options) (side, error) { return openPostgres(ctx, o, false) }

// openLeased opens the side that works as most libraries do: a worker writes the end of
// the worker's lease into the row, and deletes the row when the message is done. A
// message takes two commits, and no transaction is open while the worker works.
func openLeased(ctx context.Context, o options) (side, error) { return openPostgres(ctx, o, true) }

func openPostgres(ctx context.Context, o options, leased bool) (side, error) {
	p := &postgres{url: o.postgres, leased: leased}
	if p.url != "" {
		return p, nil
	}
	bin, err := servers.FindPostgres()
	if err != nil {
		return nil, err
	}
	// All settings are PostgreSQL's defaults, except for the number of connections.
	if p.own, err = servers.StartPostgres(ctx, bin, "max_connections="+strconv.Itoa(max(100, o.workers+10))); err != nil {
		return nil, err
	}
	p.url = p.own.URL
	return p, nil
}

func (p *postgres) Close() error {
	if p.own == nil {
		return nil
	}
	return p.own.Crash(context.Background()) // the server's data is not needed any longer
}

func (p *postgres) Remove() error {
	if p.own == nil {
		return nil
	}
	return p.own.Remove(context.Background())
}

func (p *postgres) Fill(ctx context.Context, messages [][]byte) (err error) {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closed(conn)) }()
	if _, err := conn.Exec(ctx, jobs); err != nil {
		return err
	}
	rows := pgx.CopyFromSlice(len(messages), func(i int) ([]any, error) { return []any{messages[i]}, nil })
	if _, err := conn.CopyFrom(ctx, pgx.Identifier{"queuebench"}, []string{"payload"}, rows); err != nil {
		return err
	}
	// Autovacuum has analyzed a table that has been in use for long, but not this new table.
	_, err = conn.Exec(ctx, `VACUUM ANALYZE queuebench`)
	return err
}

func (p *postgres) Describe(ctx context.Context) (text string, err error) {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, closed(conn)) }()
	var version, over string
	err = conn.QueryRow(ctx, `SELECT version(), coalesce('TCP ' || host(inet_server_addr()), 'a Unix socket')`).Scan(&version, &over)
	if err != nil {
		return "", err
	}
	described := []string{version, "over " + over}
	for _, setting := range []string{"synchronous_commit", "fsync", "shared_buffers", "max_connections"} {
		var value string
		if err := conn.QueryRow(ctx, `SELECT current_setting($1)`, setting).Scan(&value); err != nil {
			return "", err
		}
		described = append(described, setting+"="+value)
	}
	return strings.Join(described, ", "), nil
}

// Worker returns a worker with a connection of its own.
func (p *postgres) Worker(ctx context.Context) (worker, error) {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return nil, err
	}
	if p.leased {
		return &leasing{conn}, nil
	}
	return &locking{conn: conn}, nil
}

// locking is a worker that keeps its rows locked until the rows are done.
type locking struct {
	conn *pgx.Conn
	tx   pgx.Tx
}

func (w *locking) Take(ctx context.Context, most int) (ids []string, finished int, err error) {
	if w.tx, err = w.conn.Begin(ctx); err != nil {
		return nil, 0, err
	}
	ids, err = takeRows(ctx, w.tx, `SELECT id, payload FROM queuebench WHERE run_at <= now()
		ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED`, most)
	if err == nil && len(ids) == 0 {
		err = w.tx.Commit(ctx)
	}
	return ids, 0, err
}

func (w *locking) Done(ctx context.Context, ids []string) (finished int, err error) {
	if err := deleteRows(ctx, w.tx, ids); err != nil {
		return 0, err
	}
	return len(ids), w.tx.Commit(ctx)
}

func (w *locking) Close() error { return closed(w.conn) }

// leasing is a worker that writes the end of its lease into its rows.
type leasing struct{ conn *pgx.Conn }

func (w *leasing) Take(ctx context.Context, most int) (ids []string, finished int, err error) {
	ids, err = takeRows(ctx, w.conn, `UPDATE queuebench SET run_at = now() + interval '30 seconds', attempts = attempts + 1
		WHERE id IN (SELECT id FROM queuebench WHERE run_at <= now() ORDER BY run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
		RETURNING id, payload`, most)
	return ids, 0, err
}

func (w *leasing) Done(ctx context.Context, ids []string) (finished int, err error) {
	return len(ids), deleteRows(ctx, w.conn, ids)
}

func (w *leasing) Close() error { return closed(w.conn) }

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
}

// takeRows runs a query that takes rows. It returns their ids, and reads their payloads.
func takeRows(ctx context.Context, from querier, query string, most int) ([]string, error) {
	rows, err := from.Query(ctx, query, most)
	if err != nil {
		return nil, err
	}
	var ids []string
	var id int64
	var payload []byte
	_, err = pgx.ForEachRow(rows, []any{&id, &payload}, func() error {
		ids = append(ids, strconv.FormatInt(id, 10))
		return nil
	})
	return ids, err
}

func deleteRows(ctx context.Context, from querier, ids []string) error {
	tag, err := from.Exec(ctx, `DELETE FROM queuebench WHERE id = ANY ($1::bigint[])`, ids)
	if err == nil && tag.RowsAffected() != int64(len(ids)) {
		err = fmt.Errorf("a worker could delete only %d of its %d rows: other workers have deleted the rest", tag.RowsAffected(), len(ids))
	}
	return err
}

func closed(conn *pgx.Conn) error { return conn.Close(context.Background()) }
