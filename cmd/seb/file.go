package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"

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
