package mesh

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/internal/pack"
	"github.com/simple-event-broker/seb/internal/wait"
)

const (
	// PeersMax is the largest number of brokers to which a broker is connected.
	PeersMax = 256
	// outboxBytesMax bounds what waits to be sent to one peer. A peer that reads more slowly reads the store instead.
	outboxBytesMax = 8 << 20
	// inlineBytesMax is the largest payload that is sent along with a commit to brokers in the same zone.
	inlineBytesMax = 64 << 10

	helloTimeout = 10 * time.Second
	sendTimeout  = 10 * time.Second
	// finishMax bounds the time in which a mesh that is closed sends the messages that wait.
	finishMax = 250 * time.Millisecond
	retryMin  = time.Second
	retryMax  = time.Minute
	// Lively is how long a broker that writes nothing counts as running: for that long, others try to connect to it.
	Lively = 10 * time.Minute
	// staysFor is how long a broker has to commit to be one that stays, unlike a command that commits once or twice.
	staysFor = time.Minute
	// steady is how long a connection has to last, so that the next attempt after its end comes soon.
	steady = 10 * time.Second
	// silence is how long a connection may bring nothing while its broker commits. After that, it counts as broken until it
	// brings something. If it has brought nothing for that long when this broker commits, it gets a ping, and counts as broken
	// if the answer takes longer than pingTimeout.
	silence     = 300 * time.Millisecond
	pingTimeout = 500 * time.Millisecond
	// After a question without an answer, a connection counts as broken for askPauseMin; after each further one for longer.
	askPauseMin = time.Second
	askPauseMax = time.Minute
)

// ErrNoPeer says that there is no connection to a session, or that it has ended.
var ErrNoPeer = errors.New("no connection to the other broker")

// ErrOtherLog says that the other broker has another log, such as a copy of this one that has gone its own way.
var ErrOtherLog = errors.New("the other broker has another log")

// Conn carries messages to the session on the other side and back, in order.
type Conn interface {
	// Receive returns the next message, of at most MessageBytesMax bytes. The caller may keep it.
	Receive(ctx context.Context) ([]byte, error)
	Send(ctx context.Context, message []byte) error
	// Close ends the connection, and with it a call of Receive or Send that waits. It does not wait itself.
	Close()
}

// Log is the log of this broker.
type Log interface {
	// Position returns the last applied slot, and the hash of its head.
	Position() (format.Seq, format.Hash)
	// Told takes a commit that another broker says it has written.
	Told(body []byte, size int64, at time.Time) error
	// Sync applies all commits that the log has at the time of the call.
	Sync(ctx context.Context) error
	// Lost says that a connection has ended: the commits of that broker no longer come over it.
	Lost()
	// Joined says that the mesh has connected to the broker of Join, or could not connect to it.
	Joined()
	// Handed takes a message about requests that brokers hand over. It returns an error if the message is malformed.
	Handed(from format.SessionID, m Handed) error
}

// Options says how this broker reaches others, and what it tells them about itself.
type Options struct {
	Version string // of Seb
	Zone    string // where this broker runs; "" if that does not matter
	// Dial connects to a session at an address, and proves both sides to each other.
	Dial func(ctx context.Context, session format.SessionID, address string) (Conn, error)
}

// Mesh has the connections of one broker. Its methods may be called at any time, by any goroutine.
type Mesh struct {
	session format.SessionID
	address string // where others reach this broker; "" if they can't
	level   uint32
	hidden  sync.Once
	log     Log
	logger  *slog.Logger
	life    context.Context //nolint:containedctx // the life of the mesh: it ends when Close is called
	end     context.CancelFunc
	tasks   sync.WaitGroup

	sent, received, dropped atomic.Int64
	linked                  atomic.Int64 // peers that are connected

	mu    sync.Mutex
	opts  Options
	open  bool
	join  join
	peers map[format.SessionID]*peer
}

// Stats are counts of a mesh.
type Stats struct {
	Peers                   int   // brokers that are connected now
	Sent, Received, Dropped int64 // commits; those that were dropped were not sent, since a peer reads too slowly
}

// peer is another broker.
type peer struct {
	session format.SessionID
	address string             // the address in its last mark; "" if nobody knows one
	first   time.Time          // when a commit of it was seen first
	seen    time.Time          // when the last commit of it was seen
	alive   time.Time          // when this broker last had a sign that it runs
	dialing context.CancelFunc // ends the attempts to connect, or nil
	link    *link              // the connection in use, or nil
	layout  uint16
	version string
	zone    string
	level   uint32 // the highest level of the log's format that it agrees to, by its last hello
	failed  error  // why the last attempt to connect failed
}

// New returns the mesh of a session. address is where others reach this broker, or "". level is the highest level of the log's
// format that this broker agrees to. The mesh has no connections before Open is called. The caller ends it with Close.
func New(session format.SessionID, address string, level uint32, log Log, logger *slog.Logger) *Mesh {
	m := &Mesh{session: session, address: address, level: level, log: log, logger: logger, peers: map[format.SessionID]*peer{}}
	m.life, m.end = context.WithCancel(context.Background())
	return m
}

// Open lets the mesh have connections.
func (m *Mesh) Open(opts Options) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.opts, m.open = opts, m.life.Err() == nil
	m.joinLocked()
}

// Close sends the messages that wait, if the peers take them within a short time. Then it ends all connections, and waits for
// what the mesh has begun.
func (m *Mesh) Close() {
	m.mu.Lock()
	m.open = false
	m.mu.Unlock()
	near, far := m.links()
	links := slices.Concat(near, far)
	for _, l := range links {
		l.finish()
	}
	late := time.NewTimer(finishMax)
	defer late.Stop()
	for _, l := range links {
		select {
		case <-l.ended:
			continue
		case <-late.C:
		}
		break
	}
	m.end()
	m.tasks.Wait()
}

// Seen notes that a session has written a commit, and connects to the session unless it is connected. address is where the
// session's mark says that others reach it. byWire says that the session has sent the commit itself.
func (m *Mesh) Seen(session format.SessionID, address string, byWire bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if session == m.session || !m.open {
		return
	}
	p := m.peerLocked(session)
	if p == nil {
		return
	}
	p.seen, p.address = time.Now(), cmp.Or(address, p.address)
	p.alive = p.seen
	if p.first.IsZero() {
		p.first = p.seen
	}
	if p.address == "" && m.address == "" && p.link == nil && p.seen.Sub(p.first) >= staysFor {
		m.hidden.Do(func() {
			m.logger.Warn("this broker and another one of the log can't connect to each other, since neither has an address; so their appends take longer, and cost more requests",
				"session", session, "hint", "start each broker with --advertise and an address that the others reach")
		})
	}
	if p.link != nil && !byWire {
		p.link.committed()
	}
	m.dialLocked(p)
}

// dialLocked begins to connect to a peer, unless there is a connection, an attempt is under way, or nobody knows the address.
func (m *Mesh) dialLocked(p *peer) {
	if p.link != nil || p.dialing != nil || p.address == "" {
		return
	}
	var ctx context.Context
	ctx, p.dialing = context.WithCancel(m.life)
	m.tasks.Go(func() { m.connect(ctx, p) })
}

// peerLocked returns the peer with that session. It makes room for a new one by forgetting the one without a connection that
// was alive longest ago. If all peers have connections, it returns nil.
func (m *Mesh) peerLocked(session format.SessionID) *peer {
	p := m.peers[session]
	if p != nil {
		return p
	}
	if len(m.peers) >= PeersMax {
		var oldest *peer
		for _, o := range m.peers {
			if o.link == nil && (oldest == nil || o.alive.Before(oldest.alive)) {
				oldest = o
			}
		}
		if oldest == nil {
			return nil
		}
		if oldest.dialing != nil {
			oldest.dialing()
		}
		delete(m.peers, oldest.session)
	}
	p = &peer{session: session}
	m.peers[session] = p
	return p
}

// connect tries to reach a peer until there is a connection, ctx ends, or the peer has written nothing for a long time.
func (m *Mesh) connect(ctx context.Context, p *peer) {
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		m.mu.Lock()
		address := p.address
		done := ctx.Err() != nil || !m.open || p.link != nil || time.Since(p.alive) > Lively
		if done {
			p.dialing()
			p.dialing = nil
		}
		m.mu.Unlock()
		if done {
			return
		}
		begun := time.Now()
		conn, err := m.opts.Dial(ctx, p.session, address)
		if err == nil {
			err = m.run(conn, p.session, m.session)
		}
		if ctx.Err() == nil && err != nil {
			m.note(p, err)
		}
		switch {
		case errors.Is(err, ErrOtherLog):
			pause = retryMax
		case time.Since(begun) > steady:
			pause = retryMin
		}
		wait.For(ctx, pause)
	}
}

func (m *Mesh) note(p *peer, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.failed == nil || p.failed.Error() != err.Error() {
		m.logger.Debug("no connection to another broker", "session", p.session, "address", p.address, "err", err)
	}
	p.failed = err
	m.joinedLocked(p.session)
}

// Serve uses a connection that the session on the other side has asked for. It returns when the connection has ended.
func (m *Mesh) Serve(conn Conn, session format.SessionID) {
	m.mu.Lock()
	if !m.open {
		m.mu.Unlock()
		conn.Close()
		return
	}
	m.tasks.Add(1) // not after Close has begun to wait
	m.mu.Unlock()
	defer m.tasks.Done()
	if err := m.run(conn, session, session); err != nil && m.life.Err() == nil {
		m.logger.Debug("a connection of another broker has ended", "session", session, "err", err)
	}
}

// Write sends a commit of this broker to all peers. payload follows head in the commit's object. The bytes must not change
// until Write returns.
func (m *Mesh) Write(head []byte, payload [][]byte, size int64, date time.Time) {
	near, far := m.links()
	short := Commit{Body: head, Size: size, Date: date}
	if whole := size - int64(len(head)); len(near) > 0 && whole > 0 && whole <= inlineBytesMax {
		m.send(near, Commit{Body: bytes.Join(append([][]byte{head}, payload...), nil), Size: size, Date: date})
	} else {
		far = append(far, near...)
	}
	m.send(far, short)
}

// links returns the connections to brokers in the same zone, and to others.
func (m *Mesh) links() (near, far []*link) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		switch {
		case p.link == nil:
		case p.zone == m.opts.Zone:
			near = append(near, p.link)
		default:
			far = append(far, p.link)
		}
	}
	return near, far
}

// send sends a commit over all links. A commit that does not fit into a message is not sent.
func (m *Mesh) send(links []*link, c Commit) {
	if len(links) == 0 || len(c.Body) > MessageBytesMax-commitHeadSize {
		return
	}
	message := c.encode() // once for all
	for _, l := range links {
		if l.putCommit(message) {
			m.sent.Add(1)
		} else {
			m.dropped.Add(1)
		}
	}
}

// Stats returns the counts of the mesh since its start.
func (m *Mesh) Stats() Stats {
	s := Stats{Sent: m.sent.Load(), Received: m.received.Load(), Dropped: m.dropped.Load()}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		if p.link != nil && p.link.works() {
			s.Peers++
		}
	}
	return s
}

// Any reports whether any other broker is connected.
func (m *Mesh) Any() bool { return m.linked.Load() > 0 }

// Connected reports whether there is a connection to a session, and it seems to work.
func (m *Mesh) Connected(session format.SessionID) bool {
	l := m.linkTo(session)
	return l != nil && l.works()
}

// Takes reports whether there is a connection to a session that seems to work, and over which bundles can be handed over.
func (m *Mesh) Takes(session format.SessionID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peers[session]
	return p != nil && p.link != nil && p.layout >= layoutHands && p.link.works()
}

// Hand sends a message about requests that brokers hand over. It returns false if there is no connection, or if it is full.
func (m *Mesh) Hand(to format.SessionID, message Handed) bool {
	l := m.linkTo(to)
	return l != nil && l.put(message.encode())
}

// HandAll sends a message to all sessions that are connected.
func (m *Mesh) HandAll(message Handed) {
	near, far := m.links()
	for _, l := range slices.Concat(near, far) {
		l.put(message.encode())
	}
}

// RoundTrip returns how long a message took to a session and back, when that was last measured; 0 if it is not known.
func (m *Mesh) RoundTrip(session format.SessionID) time.Duration {
	if l := m.linkTo(session); l != nil {
		return l.roundTrip()
	}
	return 0
}

// Silent notes that a session has sent nothing although it should have. The connection to it counts as broken until something comes.
func (m *Mesh) Silent(session format.SessionID) {
	if l := m.linkTo(session); l != nil {
		l.silent()
	}
}

// Drop ends the connection to a session.
func (m *Mesh) Drop(session format.SessionID) {
	if l := m.linkTo(session); l != nil {
		l.conn.Close()
	}
}

func (m *Mesh) linkTo(session format.SessionID) *link {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[session]; p != nil {
		return p.link
	}
	return nil
}

// Ask asks another broker where the log ends, and returns the slot. The answer is as reliable as a Get by this broker
// that began when Ask was called. This broker may not have applied that slot yet. Ask returns ErrNoPeer, or the error
// of ctx: if the other broker can't find out where the log ends, it does not answer.
func (m *Mesh) Ask(ctx context.Context, session format.SessionID) (format.Seq, error) {
	l := m.linkTo(session)
	if l == nil {
		return 0, ErrNoPeer
	}
	return l.ask(ctx)
}

// run says hello on a connection, and then uses it until it ends. dialer is the session that has asked for the connection.
func (m *Mesh) run(conn Conn, session, dialer format.SessionID) error {
	ctx, cancel := context.WithCancel(m.life)
	defer cancel()
	defer conn.Close()
	applied, hash := m.log.Position()
	m.mu.Lock()
	own := hello{layout: Layout, applied: applied, hash: hash, version: m.opts.Version, zone: m.opts.Zone, level: m.level}
	m.mu.Unlock()
	theirs, err := greet(ctx, conn, own)
	if err != nil {
		return err
	}
	if s, h := m.log.Position(); s == theirs.applied && h != theirs.hash || applied == theirs.applied && hash != theirs.hash {
		return fmt.Errorf("%w: slot %d has the hash %v there", ErrOtherLog, theirs.applied, theirs.hash)
	}
	l := newLink(conn, dialer)
	if !m.use(l, session, theirs) {
		return nil // there is a better connection, there are too many peers, or the mesh is closed
	}
	defer close(l.ended)
	defer m.drop(l, session)
	failed := make(chan error, 1)
	m.tasks.Go(func() {
		failed <- l.send(ctx)
		conn.Close()
	})
	m.tasks.Go(func() { m.answer(ctx, l) })
	err = m.receive(ctx, l, session)
	cancel()
	if sent := <-failed; sent != nil && !errors.Is(sent, context.Canceled) {
		err = sent
	}
	return err
}

// greet sends a hello and returns the other side's.
func greet(ctx context.Context, conn Conn, own hello) (theirs hello, err error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	sent := make(chan error, 1)
	go func() { sent <- conn.Send(ctx, own.encode()) }() // both sides begin, so a send must not wait until the other side reads
	b, err := conn.Receive(ctx)
	if err != nil {
		conn.Close()
		return theirs, errors.Join(err, <-sent)
	}
	if err := <-sent; err != nil {
		return theirs, err
	}
	message, err := decode(b)
	if err != nil {
		return theirs, err
	}
	theirs, ok := message.(hello)
	if !ok {
		return theirs, fmt.Errorf("%w: the first one is no hello", pack.ErrMalformed)
	}
	return theirs, nil
}

// use makes l the connection to a session. If both sides have connected at about the same time, both keep the one
// whose dialer has the lower session id. Otherwise l replaces the older connection, which may be broken unnoticed.
func (m *Mesh) use(l *link, session format.SessionID, theirs hello) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.peerLocked(session)
	if p == nil || !m.open {
		return false
	}
	if old := p.link; old != nil {
		if old.dialer != l.dialer && bytes.Compare(old.dialer[:], l.dialer[:]) < 0 && time.Since(old.since) < helloTimeout {
			return false
		}
		old.conn.Close()
	} else {
		m.linked.Add(1)
	}
	l.answers = theirs.layout >= layoutHands
	l.roundTrip() // measure it for the first caller
	p.link, p.layout, p.version, p.zone, p.level, p.failed = l, theirs.layout, theirs.version, theirs.zone, theirs.level, nil
	m.introduceLocked(p)
	m.joinedLocked(session)
	m.logger.Debug("connected to another broker", "session", session, "version", theirs.version, "zone", theirs.zone)
	return true
}

func (m *Mesh) drop(l *link, session format.SessionID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.peers[session]; p != nil && p.link == l {
		p.link, p.alive = nil, time.Now()
		m.linked.Add(-1)
		m.log.Lost()
	}
}

// receive handles messages until the connection ends.
func (m *Mesh) receive(ctx context.Context, l *link, session format.SessionID) error {
	for {
		b, err := l.conn.Receive(ctx)
		if err != nil {
			return err
		}
		message, err := decode(b)
		if err != nil {
			return err
		}
		l.heard()
		switch x := message.(type) {
		case Commit:
			m.received.Add(1)
			if err := m.log.Told(x.Body, x.Size, x.Date); err != nil {
				return err
			}
		case Offer, Ride, Turn, Yield, Call, Bundle, Answer, Alive, Successor:
			if err := m.log.Handed(session, x.(Handed)); err != nil {
				return err
			}
		case ask:
			l.asked(x.number)
		case proof:
			l.proven(x)
		case ping:
			l.put(pong(x).encode())
		case pong:
			l.ponged(x.number)
		case meet:
			m.met(session, x)
		}
	}
}

// answer answers the questions of a peer. If several wait, an answer to the last one is enough.
func (m *Mesh) answer(ctx context.Context, l *link) {
	for {
		select {
		case number := <-l.questions:
			if m.log.Sync(ctx) == nil {
				end, _ := m.log.Position()
				l.put(proof{number, end}.encode())
			}
		case <-ctx.Done():
			return
		}
	}
}
