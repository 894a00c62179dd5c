//go:build !unix

package servers

import "os/exec"

// account is the user that PostgreSQL runs as.
type account struct{}

func serverAccount() (*account, error) { return &account{}, nil }

func (*account) own(string) error { return nil }

func (*account) use(*exec.Cmd) {}
