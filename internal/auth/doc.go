// Package auth makes and parses credentials: the secrets of API keys, and the tokens of
// signed URLs. It does not know which keys are valid, or what the keys permit: the log says that.
// It also keeps the contexts of work that ends when a key is no longer valid.
package auth
