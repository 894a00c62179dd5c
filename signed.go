package seb

import (
	"time"

	"github.com/simple-event-broker/seb/internal/auth"
)

// SignRead returns a token with which anyone may read a topic until expires, as
// long as the API key of that secret is good for it: [Credential] has it as Token.
// No broker is needed to make one.
func SignRead(apiKey, topic string, expires time.Time) (_ string, err error) {
	defer reads(&err)
	s, ok := auth.ParseSecret(apiKey)
	if !ok {
		return "", malformedKey()
	}
	if err := checkTopicName(topic); err != nil {
		return "", err
	}
	if expires.IsZero() {
		return "", refused(CodeInvalidRequest, "a signed URL needs a time at which it ends")
	}
	return s.Sign(topic, expires), nil
}
