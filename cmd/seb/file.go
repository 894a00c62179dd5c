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

// fileName reads the name of an existing file. It replaces Kong's "existingfile", which takes "" for the
// current directory.
func fileName(ctx *kong.DecodeContext, target reflect.Value) error {
	var name string
	if err := ctx.Scan.PopValueInto("file", &name); err != nil {
		return err
	}
	if name == "" {
		return errors.New("the file name is empty: name a file, or leave the flag out")
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

// readRegular returns the bytes of a regular file of at most bytesMax bytes. It refuses anything else, such
// as a FIFO, whose reader would have to wait for a writer. Before it reads a file of more than 1 MiB, it
// calls judge with the first MiB.
func readRegular(name string, bytesMax int64, judge func(first []byte, size int64) error) (b []byte, err error) {
	info, err := os.Stat(name) // comes before the open, which would fail for a socket
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, codedError{fmt.Errorf("%s is not a regular file: %v", name, info.Mode()), exitDamage}
	case info.Size() > bytesMax:
		return nil, codedError{fmt.Errorf("%s has %d bytes: no object of Seb has more than %d", name, info.Size(), bytesMax), exitDamage}
	}
	// The file may have become a FIFO since the Stat: without O_NONBLOCK the open would wait for a writer.
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	first, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil || int64(len(first)) >= info.Size() {
		return first, err
	}
	if err := judge(first, info.Size()); err != nil {
		return nil, fmt.Errorf("dump %s: %w", name, err)
	}
	b = make([]byte, info.Size())
	n, err := io.ReadFull(f, b[copy(b, first):])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // the file was shortened meanwhile
		err = nil
	}
	return b[:len(first)+n], err
}
