package httpconn

import "testing"

func TestProtocolsAreRecognised(t *testing.T) {
	for first, want := range map[string]Protocol{
		"GET /v1/topics HTTP/1.1\r\n": HTTP,
		"\r\nGET / HTTP/1.1\r\n":      HTTP,
		"":                            HTTP,
		"\x16":                        HTTP,
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03":                        TLS,
		"\x00\x00\x00\x23\x00\x12\x00\x03\x00\x00\x00\x01\x00\x07rdkafka\x00": Kafka, // ApiVersions
		"\x00\x00\x00\x14\x00\x03\x00\x00\x00\x00\x00\x02\x00\x01c":           Kafka, // Metadata
		"\x00\x00\x00\x14\x00\x03":                                            HTTP,  // too few bytes to tell
		"\x00\x00\x00\x14\x7f\xff\x00\x00\x00\x00\x00\x02":                    HTTP,  // Kafka has no such API
		"\x05\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00":                    HTTP,  // SOCKS
	} {
		if got := protocolOf([]byte(first)); got != want {
			t.Errorf("%q is %s, not %s", first, got, want)
		}
	}
}
