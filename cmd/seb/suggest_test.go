package main

import (
	"strings"
	"testing"
)

// A user of other brokers and tools finds the command, and is never led to one that destroys something else.
func TestUnknownCommandsNameTheRightOne(t *testing.T) {
	for typed, want := range map[string]string{
		"tail orders":          "`seb consume TOPIC --follow`",
		"sub orders":           "`seb consume TOPIC --follow`",
		"subscribe orders":     "`seb consume TOPIC --follow`",
		"get orders":           "`seb consume TOPIC`",
		"pub orders":           "`seb produce TOPIC`",
		"publish orders":       "`seb produce TOPIC`",
		"send orders":          "`seb produce TOPIC`",
		"ls":                   "`seb topic list`",
		"topics":               "`seb topic list`",
		"run":                  "`seb serve`",
		"topic ls":             "`seb topic list`",
		"topic rm orders":      "`seb topic delete`",
		"topic describe o":     "`seb topic show`",
		"topic add orders":     "`seb topic create`",
		"topic alter orders":   "`seb topic update`",
		"queue rm orders mail": "`seb queue delete`",
		"queue retry o mail":   "`seb queue redrive`",
		"queue dlq o mail":     "`seb queue dead`",
		"key rm ops":           "`seb key revoke`",
		"consumer ls orders":   "`seb consumer list`",
		"queue push rm o mail": "`seb queue push delete`",
		"topc list":            "`seb topic` or `seb top`",
		"prod orders":          "`seb produce`",
		"topic creat orders":   "`seb topic create`",
		"queue paus o mail":    "`seb queue pause`",
	} {
		r := runSeb(t, nil, strings.Fields(typed)...)
		r.want(t, exitUsage, "seb: unexpected argument ", "did you mean "+want+"? See seb")
		if strings.Count(r.err, "\n") != 2 {
			t.Errorf("seb %s: not an error and a hint:\n%s", typed, r.err)
		}
	}
	for _, typed := range []string{
		"topic tri orders", "topic delet orders", "rm orders", "rm", "queue purg o mail", "queue delet o mail",
		"key revok ops", "consumer rese o a", "topic truncate orders", "topic rim x", "frobnicate",
	} {
		r := runSeb(t, nil, strings.Fields(typed)...)
		r.want(t, exitUsage, "seb: unexpected argument ")
		for _, command := range []string{"trim", "delete", "purge", "revoke", "reset"} {
			if strings.Contains(strings.TrimPrefix(r.err, "seb: unexpected argument "), command) {
				t.Errorf("seb %s is led to %s:\n%s", typed, command, r.err)
			}
		}
	}
	runSeb(t, nil, "topic", "list", "--key", "seb_1_a").want(t, exitUsage, "unknown flag --key", "the API key's flag is --api-key")
	runSeb(t, nil, "topic", "list", "extra").want(t, exitUsage, "unexpected argument extra\n", "see seb topic list --help")
}
