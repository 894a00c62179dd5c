package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	databaseTimeout = 30 * time.Second

	// lockSpace is the first half of the key of the advisory lock. The second half is
	// the object id of the table.
	lockSpace = 0x5eb
)

// errElsewhere says that another drainer has the lock of the outbox.
var errElsewhere = errors.New("another process drains this outbox")

// session is a connection to the database that has the lock of the outbox. A drainer
// uses no other connection: when the connection ends, the drainer loses the lock, and
// can't change the tables any longer. The lock keeps the rows in order, and keeps two
// drainers from sending the same batch. Each row arrives once even without the lock: all
// drainers send a batch with the same idempotency key.
type session struct {
	conn  *pgx.Conn
	woken bool // a row was inserted since the last call of wait
}

// connect connects to the database and takes the lock of the outbox.
func connect(ctx context.Context, config *pgx.ConnConfig) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	s := &session{}
	config = config.Copy()
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { s.woken = true }
	var err error
	if s.conn, err = pgx.ConnectConfig(ctx, config); err != nil {
		return nil, err
	}
	if err := s.lock(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) lock(ctx context.Context) error {
	var locked bool
	err := s.conn.QueryRow(ctx, `SELECT pg_try_advisory_lock($1, 'outbox'::regclass::oid::int)`, lockSpace).Scan(&locked)
	switch {
	case err != nil:
		return fmt.Errorf("lock the outbox: %w", err)
	case !locked:
		return errElsewhere
	}
	// A batch must be durable before it is sent.
	_, err = s.conn.Exec(ctx, `SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'`)
	if err != nil {
		return fmt.Errorf("make commits wait for the disk: %w", err)
	}
	if _, err := s.conn.Exec(ctx, `LISTEN outbox`); err != nil {
		return fmt.Errorf("listen for new rows: %w", err)
	}
	return nil
}

// wait returns when a row was inserted since the last wait, or when the given time has
// passed.
func (s *session) wait(ctx context.Context, most time.Duration) error {
	defer func() { s.woken = false }()
	if s.woken {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	// The connection stays usable if ctx ends during this call.
	if err := s.conn.PgConn().WaitForNotification(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("wait for new rows: %w", err)
	}
	return nil
}

func (s *session) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx) // even if this fails, the server notices that the connection is gone
}

// configure parses a connection string. It sets TCP timeouts, so that the server
// releases the lock of an unreachable process after about 25 s instead of two hours.
func configure(database string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(database)
	if err != nil {
		return nil, err
	}
	for name, value := range map[string]string{
		"application_name":        "outbox",
		"tcp_keepalives_idle":     "10",
		"tcp_keepalives_interval": "5",
		"tcp_keepalives_count":    "3",
		"tcp_user_timeout":        "25000",
	} {
		if _, set := config.RuntimeParams[name]; !set {
			config.RuntimeParams[name] = value
		}
	}
	return config, nil
}

// hopeless tells whether a retry can't help until somebody changes the database or the
// configuration. hint says what to change.
func hopeless(err error) (hint string, ok bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return "", false
	}
	switch {
	case e.Code == "42P01": // undefined_table
		return "make the tables with: outbox -schema | psql", true
	case e.Code == "42501": // insufficient_privilege
		return "the role needs SELECT and DELETE on outbox, and SELECT, INSERT, UPDATE and DELETE on outbox_batches", true
	case strings.HasPrefix(e.Code, "42"):
		return "make the tables as outbox -schema shows them", true
	case strings.HasPrefix(e.Code, "28"), strings.HasPrefix(e.Code, "3D"):
		return "set the address, user and password of the database with -database, DATABASE_URL, or PGHOST, PGUSER, PGPASSWORD and PGDATABASE", true
	}
	return "", false
}
