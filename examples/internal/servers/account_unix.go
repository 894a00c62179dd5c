//go:build unix

package servers

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// account is the user that PostgreSQL runs as. PostgreSQL refuses to run as root.
type account struct {
	credential *syscall.Credential // nil means the user that runs this process
}

func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return &account{}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("the id of user %s: %w", name, err)
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("the group of user %s: %w", name, err)
		}
		return &account{&syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, nil
	}
	return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no user postgres or nobody for it")
}

// own makes the account's user the owner of a file.
func (a *account) own(path string) error {
	if a.credential == nil {
		return nil
	}
	return os.Chown(path, int(a.credential.Uid), int(a.credential.Gid))
}

// use makes cmd run as the account's user.
func (a *account) use(cmd *exec.Cmd) {
	if a.credential != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.credential}
	}
}
