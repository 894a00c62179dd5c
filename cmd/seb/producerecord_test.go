package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestProduceGivesRecordsTheirKeyAndHeaders(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	t.Setenv("SEB_SERVER", b.url)
	t.Setenv("SEB_KEY", "seb_1_"+strings.Repeat("a", 64)) // the API key, in the variable's old spelling
	type record struct {
		Key     *string
		Value   string
		Headers map[string]any
	}
	trace := map[string]any{"trace": []any{"1", "2,3"}, "Type": "a=b"}
	headers := []string{"--header", "trace=1", "--header", "Type=a=b", "--header", "trace=2,3"}
	for name, test := range map[string]struct {
		input string
		args  []string
		want  []record
	}{
		"line":      {"paid\n\n\"1\"\n", append(headers, "--key", "alice"), []record{{new("alice"), "paid", trace}, {new("alice"), "", trace}, {new("alice"), `"1"`, trace}}},
		"raw":       {"a\nb", []string{"--format", "raw", "--key", ""}, []record{{new(""), "a\nb", nil}}},
		"headers":   {"a\n", []string{"--header", "empty="}, []record{{nil, "a", map[string]any{"empty": ""}}}},
		"binary":    {"\x01\x00\x00\x00k\x01\x00\x00\x00v\xff\xff\xff\xff\x01\x00\x00\x00w", append(headers, "--format", "binary"), []record{{new("k"), "v", trace}, {nil, "w", trace}}},
		"separator": {"k:v\nw\n", append(headers, "--key-separator", ":"), []record{{new("k"), "v", trace}, {nil, "w", trace}}},
	} {
		t.Run(name, func(t *testing.T) {
			runSeb(t, strings.NewReader(test.input), append([]string{"produce", name}, test.args...)...).want(t, exitOK)
			r := runSeb(t, nil, "consume", name, "--format", "json")
			r.want(t, exitOK)
			var got []record
			for line := range strings.Lines(r.out) {
				var rec record
				if err := json.Unmarshal([]byte(line), &rec); err != nil {
					t.Fatal(err)
				}
				if len(rec.Headers) == 0 {
					rec.Headers = nil
				}
				got = append(got, rec)
			}
			gotJSON, _ := json.Marshal(got)
			wantJSON, _ := json.Marshal(test.want)
			if string(gotJSON) != string(wantJSON) {
				t.Errorf("it has\n%s, not\n%s", gotJSON, wantJSON)
			}
		})
	}
}

func TestProduceRefusesKeysAndHeadersThatDoNotFit(t *testing.T) {
	b := serve(t, nil, "--store", "memory:")
	t.Setenv("SEB_SERVER", b.url)
	for args, want := range map[string]string{
		"--key a --key-separator :":               "--key can't be combined with --key-separator",
		"--key a --format json":                   "--key can't be combined with --format json",
		"--key a --format binary":                 "--key can't be combined with --format binary",
		"--header a=b --format json":              "--header can't be combined with --format json",
		"--header a":                              `invalid --header "a": write NAME=VALUE`,
		"--header =b":                             `invalid --header "=b": write NAME=VALUE`,
		"--header a=\xff":                         ": it is not UTF-8",
		"--key \xff":                              ": it is not UTF-8",
		"--key seb_1_" + strings.Repeat("0a", 32): "this is an API key, but --key is the key of records",
	} {
		r := runSeb(t, strings.NewReader("x\n"), append([]string{"produce", "orders"}, strings.Fields(args)...)...)
		r.want(t, exitUsage, want)
		if strings.Contains(r.err, "0a0a") {
			t.Errorf("it shows the API key:\n%s", r.err)
		}
	}
	runSeb(t, nil, "topic", "show", "orders").want(t, exitRefused, "topic_not_found")
}
