package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"syscall"

	"github.com/alecthomas/kong"
)

// fileName reads the name of a file that is there, in place of Kong's
// "existingfile", which takes "" for the directory that it runs in.
func fileName(ctx *kong.DecodeContext, target reflect.Value) error {
	var name string
	if err := ctx.Scan.PopValueInto("file", &name); err != nil {
		return err
	}
	if name == "" {
		return errors.New("it is empty: name a file, or leave it out")
	}
	name = kong.ExpandPath(name)
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return fmt.Errorf("%s is a directory: name a file", name)
	}
	target.SetString(name)
	return nil
}

// readRegular returns the bytes of a regular file of at most bytesMax bytes. It
// refuses all else, such as a FIFO, which would keep it waiting for a writer.
func readRegular(name string, bytesMax int64) (b []byte, err error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, codedError{fmt.Errorf("%s is not a regular file: %v", name, info.Mode()), exitDamage}
	case info.Size() > bytesMax:
		return nil, codedError{fmt.Errorf("%s has %d bytes: no object of Seb has more than %d", name, info.Size(), bytesMax), exitDamage}
	}
	return io.ReadAll(io.LimitReader(f, bytesMax))
}
