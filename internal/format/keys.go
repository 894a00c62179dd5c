package format

// The entries about API keys. Only the client that uses a key knows the key's secret. The log has a
// hash of the secret, with which brokers check the secret of a request.
//
//	9 key created:
//	  offset size meaning
//	       0    8 id (uint64)
//	       8    8 expires, microseconds since 1970 (int64); 0 = never
//	      16    2 scopes (uint16): bit 0 read, 1 write, 2 admin, 3 metrics
//	      18    2 size of the name (uint16)
//	      20   16 salt
//	      36   32 SHA-256 of the salt and the secret
//	      68   32 Ed25519 public key, by which brokers verify URLs signed with the secret
//	     100    … name
//	       …    … topic patterns until the end of the entry: size (uint16), pattern
//	10 key revoked: id (uint64)
const (
	entryKeyCreated = 9
	entryKeyRevoked = 10

	keyFixedSize = 100
)

// KeyCreated adds an API key.
type KeyCreated struct {
	ID      KeyID
	Expires int64 // microseconds since 1970; 0 means never
	Scopes  uint16
	Salt    [16]byte
	Hash    [32]byte // SHA-256 of Salt and the secret
	Public  [32]byte // Ed25519 public key; the private key is derived from the secret
	Name    string
	Topics  []string // each is a topic's name, or a prefix of topic names followed by *
}

// KeyRevoked revokes an API key for ever.
type KeyRevoked struct{ ID KeyID }

func (*KeyCreated) kind() uint16 { return entryKeyCreated }
func (*KeyRevoked) kind() uint16 { return entryKeyRevoked }

func (k *KeyCreated) size() int {
	n := keyFixedSize + len(k.Name)
	for _, t := range k.Topics {
		n += 2 + len(t)
	}
	return n
}

func (*KeyRevoked) size() int { return 8 }

func (k *KeyCreated) append(b []byte) []byte {
	b = le.AppendUint64(b, uint64(k.ID))
	b = le.AppendUint64(b, uint64(k.Expires))
	b = le.AppendUint16(b, k.Scopes)
	b = le.AppendUint16(b, uint16(len(k.Name)))
	b = append(b, k.Salt[:]...)
	b = append(b, k.Hash[:]...)
	b = append(b, k.Public[:]...)
	b = append(b, k.Name...)
	for _, t := range k.Topics {
		b = le.AppendUint16(b, uint16(len(t)))
		b = append(b, t...)
	}
	return b
}

func (k *KeyRevoked) append(b []byte) []byte { return le.AppendUint64(b, uint64(k.ID)) }

func decodeKeyCreated(b []byte) (*KeyCreated, error) {
	if len(b) < keyFixedSize {
		return nil, Corrupt("an entry for an API key has the invalid size of %d bytes", len(b))
	}
	k := &KeyCreated{
		ID:      KeyID(le.Uint64(b)),
		Expires: int64(le.Uint64(b[8:])),
		Scopes:  le.Uint16(b[16:]),
		Salt:    [16]byte(b[20:36]),
		Hash:    [32]byte(b[36:68]),
		Public:  [32]byte(b[68:100]),
	}
	name, rest := int(le.Uint16(b[18:])), b[keyFixedSize:]
	if name > len(rest) {
		return nil, Corrupt("the name of an API key does not fit into its entry")
	}
	k.Name, rest = string(rest[:name]), rest[name:]
	for len(rest) > 0 {
		if len(rest) < 2 || int(le.Uint16(rest)) > len(rest)-2 {
			return nil, Corrupt("the topics of an API key do not fit into its entry")
		}
		size := int(le.Uint16(rest))
		k.Topics = append(k.Topics, string(rest[2:2+size]))
		rest = rest[2+size:]
	}
	return k, nil
}
