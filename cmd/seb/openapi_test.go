package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A generator makes valid and invalid requests from openapi.yaml, and every answer must be one that the
// document describes. The seed is fixed, so that a finding can be reproduced.
func TestGeneratedRequestsAreAnsweredAsDescribed(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute")
	}
	generator := findSchemathesis(t)
	t.Parallel()
	broker := serve(t, nil, "--store", "memory:")
	key := runSeb(t, nil, "key", "create", "generator", "--scope", "admin", "--server", broker.url)
	key.want(t, exitOK)
	told, err := filepath.Abs("../../tools/schemathesis")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), generator, "--config-file", filepath.Join(told, "schemathesis.toml"), "--no-color",
		"run", broker.url+"/openapi.yaml", "--header", "Authorization: Bearer "+strings.TrimSpace(key.out), "--phases", "coverage,fuzzing", "--max-examples", "10", "--seed", "1",
		"--exclude-path", "/v1/keys/{id}", // it would revoke its own key
		"--exclude-operation-id", "originalRead", // it waits 10 s by default
		"--continue-on-failure", "--no-shrink", "--request-timeout", "10")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "SCHEMATHESIS_HOOKS="+filepath.Join(told, "hooks.py"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("schemathesis: %v\n%s", err, out)
	}
}

// findSchemathesis returns the program that SEB_TEST_SCHEMATHESIS names, else the one in the PATH. If it
// finds none, it skips the test, or fails it if SEB_TEST_REQUIRE is 1.
func findSchemathesis(t *testing.T) string {
	t.Helper()
	name := os.Getenv("SEB_TEST_SCHEMATHESIS")
	if name == "" {
		name = "schemathesis"
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	const missing = "schemathesis is missing: run SEB_TEST_SCHEMATHESIS=$(make --silent schemathesis) go test ./cmd/seb"
	if os.Getenv("SEB_TEST_REQUIRE") == "1" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}
