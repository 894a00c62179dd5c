// Package auth makes and reads what callers show: the secrets of API keys, and the
// tokens of signed URLs. It knows no keys: which are in force, and what they may do,
// stands in the log.
package auth
