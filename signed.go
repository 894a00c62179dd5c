package seb

import (
	"time"

	"github.com/simple-event-broker/seb/internal/auth"
)

// SignRead returns a token for [Credential].Token, with which anyone may read a topic until
// expires, as long as the API key allows it. It needs no broker.
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
