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

// A flag of another tool is answered with the flag or argument of the same command that does the same.
func TestUnknownFlagsNameTheRightOne(t *testing.T) {
	for typed, want := range map[string]string{
		"serve --port 80":                       "`--http=HOST:PORT`",
		"serve --listen :80":                    "`--http=HOST:PORT`",
		"serve --bind 0.0.0.0":                  "`--http=HOST:PORT`",
		"serve --host 0.0.0.0":                  "`--http=HOST:PORT`",
		"serve -p 80":                           "`--http=HOST:PORT`",
		"serve --data-dir /var/seb":             "`--store=DIR|URL`",
		"doctor --bucket b":                     "`--store=DIR|URL`",
		"consume t --bootstrap-server=a:1":      "`--server=URL`",
		"produce t --broker-list a:1":           "`--server=URL`",
		"topic list --token a":                  "`--api-key-file=FILE`",
		"topic list --host a":                   "`--server=URL`",
		"queue list t --port 1":                 "`--server=URL`",
		"consume --topic t":                     "`seb consume TOPIC`",
		"topic create --topic t --partitions 3": "`seb topic create TOPIC`",
		"queue show t --queue q":                "`seb queue show TOPIC QUEUE`",
		"consume -b a:1":                        "`--server=URL`",
		"consume -t t":                          "`seb consume TOPIC`",
		"consume t --group g":                   "`--consumer=NAME`",
		"consumer show t --group g":             "`seb consumer show TOPIC CONSUMER`",
		"consume t --from-beginning":            "`--from=earliest`",
		"consume t --offset 3":                  "`--from=POSITION`",
		"consume t --max-messages 3":            "`--limit=N`",
		"queue receive t q --max-messages 3":    "`--max=N`",
		"queue create t q --attempts 3":         "`--max-attempts=N`",
		"queue update t q --retries 3":          "`--max-attempts=N`",
		"consumer reset t c --to 2":             "`--from=POSITION`",
		"consume t --limt 3":                    "`--limit=N`",
		"consume t --part 3":                    "`--partition=N`",
	} {
		flag, _, _ := strings.Cut(strings.Fields(typed[strings.Index(typed, " -")+1:])[0], "=")
		r := runSeb(t, nil, strings.Fields(typed)...)
		r.want(t, exitUsage, "seb: unknown flag "+flag+"\n", "did you mean "+want+"? See seb")
	}
	for _, typed := range []string{"topic list --to 2", "serve --group g", "topic list --topic t", "version --port 1", "--port 1"} {
		if r := runSeb(t, nil, strings.Fields(typed)...); r.code != exitUsage || !strings.Contains(r.err, "see seb ") || strings.Contains(r.err, "did you mean") {
			t.Errorf("seb %s: %d, %s", typed, r.code, r.err)
		}
	}
}
