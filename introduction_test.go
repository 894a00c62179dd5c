package seb_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func mustIntroduce(t *testing.T, b *seb.Broker) string {
	t.Helper()
	key, err := b.Peers().Introduce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func wantKnown(t *testing.T, b *seb.Broker, k seb.SessionKey, introduction string, want bool) {
	t.Helper()
	if known, err := b.KnowsSession(t.Context(), k, introduction); err != nil || known != want {
		t.Errorf("with the introduction %q the session is known: %v, want %v; %v", introduction, known, want, err)
	}
}

// A broker that has introduced itself is known without a commit of its own. The next commit of the other broker names it to all.
func TestIntroducedSessionIsKnown(t *testing.T) {
	bucket := storetest.NewBucket()
	store := storetest.NewFaulty(bucket)
	one, two := open(t, store, immediate()), open(t, store, immediate())
	key := mustIntroduce(t, one)
	if again := mustIntroduce(t, one); again != key || store.Count(objstore.VerbCreate, "data/") != 1 {
		t.Errorf("introduced with %s, then with %s", key, again)
	}
	for range 3 {
		wantKnown(t, two, one.Session(), key, true)
	}
	wantKnown(t, two, one.Session(), "", true)
	if gets, applied := store.Count(objstore.VerbGet, "data/"), two.Status().Applied; gets != 1 || applied != 0 {
		t.Errorf("it took %d Gets, and %d commits", gets, applied)
	}
	mustCreateTopic(t, two, "t", 1)
	mustCreateTopic(t, two, "u", 1)
	wantKnown(t, open(t, store, immediate()), one.Session(), "", true)
	if _, err := one.Topic(t.Context(), "u"); err != nil { // it syncs
		t.Fatal(err)
	}
	if key := mustIntroduce(t, one); key != "" {
		t.Errorf("the log names the broker, but it introduces itself with %s", key)
	}
	named := 0
	for _, key := range bucket.Keys("log/") {
		c, err := format.DecodeCommit(bucket.Body(key))
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range c.Entries {
			if x, ok := entry.(*format.SessionNamed); ok && x.Session == format.SessionKey(one.Session()) {
				named++
			}
		}
	}
	if named != 1 {
		t.Errorf("the session is named %d times", named)
	}
}

// Other brokers delete the object some time later, so a broker uses it only for some minutes.
func TestIntroductionIsStoredAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		first := mustIntroduce(t, b)
		time.Sleep(10*time.Minute - 1)
		if key := mustIntroduce(t, b); key != first {
			t.Errorf("stored %s soon after %s", key, first)
		}
		time.Sleep(time.Nanosecond)
		if key := mustIntroduce(t, b); key == first {
			t.Error("it uses an old object")
		}
	})
}

// The object must be in this bucket, and must name the session that asks.
func TestFalseIntroductions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bucket := storetest.NewBucket()
		store := storetest.NewFaulty(bucket)
		one, two := open(t, bucket, immediate()), open(t, store, immediate())
		copied := open(t, bucket.Copy().Bucket(), immediate())
		key := mustIntroduce(t, one)
		sound := bytes.Clone(bucket.Body(key))
		wantKnown(t, two, copied.Session(), mustIntroduce(t, copied), false) // not in this bucket
		wantKnown(t, two, copied.Session(), key, false)                      // of another session
		elsewhere := (format.DataRef{Seq: 1, ID: 7}).Key()
		damaged := bytes.Clone(sound)
		damaged[80] ^= 1
		x, err := format.DecodeIntroduction(sound)
		if err != nil {
			t.Fatal(err)
		}
		x.Cluster[0]++
		for name, object := range map[string]struct {
			key  string
			body []byte
		}{
			"under another key": {elsewhere, sound},
			"truncated":         {key, sound[:95]},
			"empty":             {key, nil},
			"damaged":           {key, damaged},
			"longer":            {key, append(bytes.Clone(sound), 0)},
			"huge":              {key, append(bytes.Clone(sound), make([]byte, 1<<20)...)},
			"of another log":    {key, format.EncodeIntroduction(x)},
			"not of Seb":        {key, bytes.Repeat([]byte("x"), 96)},
		} {
			bucket.Put(object.key, object.body)
			if known, err := two.KnowsSession(t.Context(), one.Session(), object.key); known || err != nil {
				t.Errorf("%s: the session is known: %v, %v", name, known, err)
			}
			bucket.Put(key, sound)
		}
		before := store.Count(objstore.VerbGet, "data/")
		for _, other := range []string{"log/00000000000000000001", "seb.json", key + "/x", "data/../" + key, "x" + key, "data/1-1"} {
			wantKnown(t, two, one.Session(), other, false)
		}
		if n := store.Count(objstore.VerbGet, "data/"); n != before || store.Count(objstore.VerbGet, "seb.json") != 1 {
			t.Error("it has read an object under a key that no introduction has")
		}
		bucket.Remove(key)
		wantKnown(t, two, one.Session(), key, false)
		bucket.Put(key, sound)
		wantKnown(t, two, one.Session(), key, true)
	})
}

// A slow or failing store decides nothing, and holds up nobody for ever.
func TestIntroductionThatTheStoreDoesNotGive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := objstore.NewMemory()
		store := storetest.NewFaulty(memory)
		one, two := open(t, memory, immediate()), open(t, store, immediate())
		key := mustIntroduce(t, one)
		remove := store.On(objstore.VerbGet, "data/", func(ctx context.Context, _ storetest.Request, _ storetest.Next) (storetest.Answer, error) {
			<-ctx.Done()
			return storetest.Answer{}, ctx.Err()
		})
		begun := time.Now()
		known, err := two.KnowsSession(t.Context(), one.Session(), key)
		if took := time.Since(begun); known || seb.CodeOf(err) != seb.CodeStoreUnavailable || took != 5*time.Second {
			t.Errorf("after %v: %v, %v", took, known, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		begun = time.Now()
		if known, err := two.KnowsSession(ctx, one.Session(), key); known || err == nil || time.Since(begun) != 2*time.Second {
			t.Errorf("after %v: %v, %v", time.Since(begun), known, err)
		}
		remove()
		wantKnown(t, two, one.Session(), key, true)

		failing := storetest.NewFaulty(memory)
		three := open(t, failing, immediate())
		failing.SetDown(true)
		if key, err := three.Peers().Introduce(t.Context()); key != "" || seb.CodeOf(err) != seb.CodeStoreUnavailable {
			t.Errorf("introduced with %q: %v", key, err)
		}
		failing.SetDown(false)
		wantKnown(t, one, three.Session(), mustIntroduce(t, three), true)
	})
}

// Strangers that name introductions cause at most one read a second, together with those that name none.
func TestStrangersIntroductionsShareARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewFaulty(objstore.NewMemory())
		b := open(t, store, immediate())
		gets := func() int { return store.Count(objstore.VerbGet, "") }
		before, began := gets(), time.Now()
		var strangers sync.WaitGroup
		for i := range 20 {
			strangers.Go(func() {
				for n := range 4 {
					key := (format.DataRef{Seq: 0, ID: uint64(i)}).Key()
					if i%2 == 0 {
						key = ""
					}
					wantKnown(t, b, seb.SessionKey{1, byte(i), byte(n)}, key, false)
				}
			})
		}
		strangers.Wait()
		if sent, most := gets()-before, int(time.Since(began)/time.Second)+2; sent > most || store.Count(objstore.VerbGet, "data/") < 40 {
			t.Errorf("%d requests were sent in %v", sent, time.Since(began))
		}
	})
}
