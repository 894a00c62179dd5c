package httpconn

import "encoding/binary"

// Protocol is what a client speaks.
type Protocol string

// The protocols that clients speak to the wrong port.
const (
	HTTP  Protocol = "HTTP" // or anything that is none of the others
	TLS   Protocol = "TLS"
	Kafka Protocol = "Kafka"
)

const (
	tlsHandshake = 0x16
	tlsMajor     = 3
	// A Kafka request begins with its size (4 bytes, which the size does not count), the number of the API (2), its
	// version (2) and the id of the request (4). Clients begin with ApiVersions or, old ones, with Metadata; some send
	// Produce or Fetch at once. See https://kafka.apache.org/protocol#protocol_messages.
	kafkaHeader     = 4 + 2 + 2 + 4
	kafkaBytesMax   = 1 << 20
	kafkaAPIMax     = 100
	kafkaVersionMax = 20
)

// protocolOf tells the protocol by the first bytes that a client has sent. The first byte of an HTTP request is
// a letter or the end of a line.
func protocolOf(b []byte) Protocol {
	switch {
	case len(b) >= 2 && b[0] == tlsHandshake && b[1] == tlsMajor:
		return TLS
	case len(b) >= kafkaHeader && isKafka(b):
		return Kafka
	}
	return HTTP
}

func isKafka(b []byte) bool {
	size, api, version := binary.BigEndian.Uint32(b), binary.BigEndian.Uint16(b[4:]), binary.BigEndian.Uint16(b[6:])
	return size >= kafkaHeader-4 && size < kafkaBytesMax && api < kafkaAPIMax && version < kafkaVersionMax
}
