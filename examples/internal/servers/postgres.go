// Package servers runs the servers that tests and benchmarks of the examples need: a
// PostgreSQL and a `seb serve`. Each has its files in a temporary directory, and is
// reachable only from this machine.
package servers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// PostgresVariable is the name of the environment variable with the directory of
	// PostgreSQL's programs.
	PostgresVariable = "SEB_TEST_POSTGRES"

	// leaveTimeout is how long run waits for the end of a program's output after the
	// program has ended: a server that the program has started may keep the output open.
	leaveTimeout = 5 * time.Second
)

// ErrNoPostgres says that there is no PostgreSQL on this machine.
var ErrNoPostgres = errors.New("needs PostgreSQL: install it (Debian: apt-get install postgresql), or set " +
	PostgresVariable + " to the directory that has its initdb and pg_ctl")

// Postgres is a PostgreSQL server that listens on a Unix socket.
type Postgres struct {
	URL     string
	Version string // output of `postgres --version`

	bin  string
	dir  string
	user *account
}

// FindPostgres returns the directory of PostgreSQL's programs: the directory that
// SEB_TEST_POSTGRES names, else the directory of the initdb in PATH, else the directory of
// the newest Debian package. It returns [ErrNoPostgres] if none of these exists.
func FindPostgres() (bin string, err error) {
	if bin := os.Getenv(PostgresVariable); bin != "" {
		if _, err := os.Stat(filepath.Join(bin, "pg_ctl")); err != nil {
			return "", fmt.Errorf("%s: %w", PostgresVariable, err)
		}
		return bin, nil
	}
	if initdb, err := exec.LookPath("initdb"); err == nil {
		// initdb may be a link; the other programs are in the directory of its target.
		if initdb, err = filepath.EvalSymlinks(initdb); err == nil {
			return filepath.Dir(initdb), nil
		}
	}
	newest := 0
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	for _, initdb := range found {
		version, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(initdb))))
		if err == nil && version > newest {
			newest, bin = version, filepath.Dir(initdb)
		}
	}
	if newest == 0 {
		return "", ErrNoPostgres
	}
	return bin, nil
}

// StartPostgres starts a server with an empty database and the given settings,
// such as "fsync=off". Remove ends the server.
func StartPostgres(ctx context.Context, bin string, settings ...string) (*Postgres, error) {
	user, err := serverAccount()
	if err != nil {
		return nil, err
	}
	// The name is short, because the path of a Unix socket must be short.
	dir, err := os.MkdirTemp("", "seb-pg-")
	if err != nil {
		return nil, err
	}
	p := &Postgres{bin: bin, dir: dir, user: user}
	p.URL = "postgres:///postgres?" + url.Values{"host": {dir}, "user": {"postgres"}}.Encode()
	if err := p.create(ctx, settings); err != nil {
		return nil, errors.Join(err, p.Remove(context.WithoutCancel(ctx)))
	}
	return p, nil
}

func (p *Postgres) create(ctx context.Context, settings []string) error {
	if err := p.user.own(p.dir); err != nil {
		return err
	}
	version, err := p.run(ctx, "postgres", "--version")
	if err != nil {
		return err
	}
	p.Version = strings.TrimSpace(version)
	if _, err := p.run(ctx, "initdb", "--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--pgdata="+p.data()); err != nil {
		return err
	}
	settings = append([]string{"listen_addresses=''", "unix_socket_directories='" + p.dir + "'"}, settings...)
	text := strings.Join(settings, "\n") + "\n"
	if err := os.WriteFile(filepath.Join(p.data(), "postgresql.auto.conf"), []byte(text), 0o644); err != nil { // PostgreSQL may run as another user, who reads the file
		return err
	}
	return p.Start(ctx)
}

func (p *Postgres) data() string { return filepath.Join(p.dir, "data") }

// Start starts the server, which must be down, and returns when the server answers.
func (p *Postgres) Start(ctx context.Context) error {
	log := filepath.Join(p.dir, "log")
	if _, err := p.run(ctx, "pg_ctl", "start", "--wait", "--pgdata="+p.data(), "--log="+log); err != nil {
		b, _ := os.ReadFile(log) // if this fails, the error only has less detail
		return fmt.Errorf("%w\n%s", err, b)
	}
	return nil
}

// Crash ends the server without a checkpoint, as a crash does. At the next start the server
// recovers from its log.
func (p *Postgres) Crash(ctx context.Context) error {
	_, err := p.run(ctx, "pg_ctl", "stop", "--mode=immediate", "--pgdata="+p.data())
	return err
}

// Remove ends the server and deletes its files.
func (p *Postgres) Remove(ctx context.Context) error {
	var err error
	if _, missing := os.Stat(filepath.Join(p.data(), "postmaster.pid")); missing == nil {
		err = p.Crash(ctx) // the server's data is deleted anyway
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// run runs one of PostgreSQL's programs as the server's user.
func (p *Postgres) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(p.bin, program), args...)
	cmd.Dir = p.dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "TZ=UTC")
	cmd.WaitDelay = leaveTimeout
	p.user.use(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", program, err, out)
	}
	return string(out), nil
}
