package access_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/internal/format"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestLogWithoutKeysIsOpenAndNeverAgainAfterTheFirst(t *testing.T) {
	store := objstore.NewMemory()
	b := open(t, store, seb.Options{Batching: seb.Immediate()})
	a, err := b.Authenticate(t.Context(), seb.Credential{Names: []string{"some.host"}})
	if err != nil || !a.Open() || a.CheckAll(seb.ScopeAdmin) != nil || b.KeysExist() {
		t.Fatalf("access is %+v, %v", a, err)
	}
	if a, err = b.Authenticate(t.Context(), bySecret("some other program's")); err != nil || !a.Open() {
		t.Fatal(a, err)
	}

	for _, opts := range []seb.KeyOptions{
		{Name: "ops", Scopes: seb.ScopeRead | seb.ScopeWrite},
		{Name: "ops", Scopes: seb.ScopeAdmin, Topics: []string{"orders.*"}},
	} {
		_, _, err := b.CreateKey(t.Context(), opts)
		wantCode(t, err, seb.CodeInvalidRequest) // such a key would lock everyone out
	}
	k, secret := createKey(t, b, seb.KeyOptions{Name: "ops"})
	for range 2 {
		_, err = b.Authenticate(t.Context(), seb.Credential{})
		wantCode(t, err, seb.CodeUnauthorized)
		if _, err := b.RevokeKey(t.Context(), k.ID); err != nil && seb.CodeOf(err) != seb.CodeKeyNotFound {
			t.Fatal(err)
		}
	}
	again := open(t, store, seb.Options{})
	_, err = again.Authenticate(t.Context(), seb.Credential{})
	wantCode(t, err, seb.CodeUnauthorized)
	_, err = again.Authenticate(t.Context(), bySecret(secret))
	wantCode(t, err, seb.CodeUnauthorized)
	if !again.KeysExist() {
		t.Fatal("the log is open again")
	}
}

func TestKeysAreCheckedByEveryBrokerAndAfterCheckpoints(t *testing.T) {
	store := objstore.NewMemory()
	b := open(t, store, seb.Options{Batching: seb.Immediate(), CheckpointCommits: 1})
	ops, secret := createKey(t, b, seb.KeyOptions{Name: "ops"})
	shop, shopSecret := createKey(t, b, seb.KeyOptions{Name: "shop", Scopes: seb.ScopeWrite, Topics: []string{"orders", "orders.*"}, Expires: time.Now().Add(time.Hour)})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = open(t, store, seb.Options{})
	for secret, want := range map[string]seb.Key{secret: ops, shopSecret: shop} {
		a, err := b.Authenticate(t.Context(), bySecret(secret))
		if err != nil || fmt.Sprint(a.Key) != fmt.Sprint(want) {
			t.Errorf("%v: key %+v", err, a.Key)
		}
		for i := range len(secret) {
			bent := []byte(secret)
			bent[i] ^= 1
			if _, err := b.AuthenticateKnown(bySecret(string(bent))); seb.CodeOf(err) != seb.CodeUnauthorized {
				t.Fatalf("with byte %d changed: %v", i, err)
			}
		}
		for _, bent := range []string{secret[:len(secret)-1], secret + "0", strings.ToUpper(secret), " " + secret, strings.Replace(secret, "seb_", "seb_0", 1)} {
			if _, err := b.AuthenticateKnown(bySecret(bent)); seb.CodeOf(err) != seb.CodeUnauthorized {
				t.Errorf("%q: %v", bent, err)
			}
		}
	}
	a, err := b.Authenticate(t.Context(), seb.Credential{Names: []string{"nobody", "shop"}})
	if err != nil || a.Key.Name != "shop" {
		t.Errorf("by name: %+v, %v", a.Key, err)
	}
	ks, err := seb.Collect(b.Keys(t.Context(), 0))
	if err != nil || len(ks) != 2 || ks[0].Name != "ops" || ks[1].Scopes != seb.ScopeWrite {
		t.Errorf("keys are %+v, %v", ks, err)
	}
}

func TestAccessIsForScopesAndTopics(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	for i, test := range []struct {
		scopes seb.Scopes
		topics []string
		yes    []string
		no     []string
	}{
		{seb.ScopeAdmin, nil, []string{"read t", "write t", "admin t", "admin *"}, nil},
		{seb.ScopeRead, []string{"a", "b.*"}, []string{"read a", "read b.", "read b.c"}, []string{"read b", "read ab", "read aa", "read *", "write a", "admin a"}},
		{seb.ScopeWrite, []string{"*"}, []string{"write t", "write *"}, []string{"read t", "admin t", "admin *"}},
		{seb.ScopeRead | seb.ScopeWrite, []string{"t"}, []string{"read t", "write t"}, []string{"admin t", "write u"}},
		{seb.ScopeAdmin, []string{"t*"}, []string{"admin t", "read tt"}, []string{"admin u", "admin *", "read u"}},
		{seb.ScopeRead, []string{"..*", ".*"}, []string{"read .x", "read ..x"}, []string{"read x"}},
		{seb.ScopeRead | seb.ScopeWrite | seb.ScopeMetrics, nil, []string{"read _seb", "write _sebx"}, []string{"read _seb.t", "write _seb.t", "metrics _seb.t", "admin _seb.t"}},
		{seb.ScopeAdmin, []string{"_seb.t*"}, []string{"read _seb.t", "write _seb.tu", "admin _seb.t"}, []string{"read _seb.u", "read t"}},
	} {
		_, secret := createKey(t, b, seb.KeyOptions{Name: fmt.Sprint("k", i), Scopes: test.scopes, Topics: test.topics})
		a, err := b.Authenticate(t.Context(), bySecret(secret))
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string) error {
			scope, topic, _ := strings.Cut(what, " ")
			s, err := seb.ParseScopes([]string{scope})
			if err != nil {
				t.Fatal(err)
			}
			if topic == "*" {
				return a.CheckAll(s)
			}
			return a.CheckTopic(s, topic)
		}
		for _, what := range test.yes {
			if err := check(what); err != nil {
				t.Errorf("%v for %v: %s: %v", test.scopes, test.topics, what, err)
			}
		}
		for _, what := range test.no {
			if err := check(what); seb.CodeOf(err) != seb.CodeForbidden {
				t.Errorf("%v for %v: %s: %v", test.scopes, test.topics, what, err)
			}
		}
	}
	if err := (seb.Access{}).CheckTopic(seb.ScopeRead, "t"); seb.CodeOf(err) != seb.CodeForbidden {
		t.Errorf("an access of nobody: %v", err)
	}
}

// Topics whose names begin with _seb. are for admins, and for the program itself. While the log has no keys, everybody is an admin.
func TestReservedTopicsAreForAdmins(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	mustAppend(t, b, "_seb.program", "x")
	everybody, err := b.Authenticate(t.Context(), seb.Credential{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Append(seb.WithAccess(t.Context(), everybody), "_seb.everybody", values("x")); err != nil || !everybody.MaySee("_seb.everybody") {
		t.Errorf("without keys: %v", err)
	}
	_, admins := createKey(t, b, seb.KeyOptions{Name: "ops"})
	_, others := createKey(t, b, seb.KeyOptions{Name: "all", Scopes: seb.ScopeRead | seb.ScopeWrite | seb.ScopeMetrics})
	admin, other := asCaller(t, b, bySecret(admins)), asCaller(t, b, bySecret(others))
	for name, create := range map[string]func(ctx context.Context, topic string) error{
		"CreateTopic": func(ctx context.Context, topic string) error {
			_, _, err := b.CreateTopic(ctx, topic, seb.TopicOptions{})
			return err
		},
		"Append": func(ctx context.Context, topic string) error { _, err := b.Append(ctx, topic, values("x")); return err },
		"Commit": func(ctx context.Context, topic string) error {
			_, err := b.Commit(ctx, seb.Commit{Appends: []seb.CommitAppend{{Topic: topic, Records: values("x")}}})
			return err
		},
	} {
		err := create(other, "_seb."+name)
		wantCode(t, err, seb.CodeForbidden)
		wantOutcome(t, err, seb.NotCommitted)
		if _, err := b.TopicID(t.Context(), "_seb."+name); seb.CodeOf(err) != seb.CodeTopicNotFound {
			t.Errorf("%s: %v", name, err)
		}
		for who, ctx := range map[string]context.Context{"admin": admin, "program": t.Context()} {
			if err := create(ctx, "_seb."+name+"."+who[:2]); err != nil {
				t.Errorf("%s by %s: %v", name, who, err)
			}
		}
		if err := create(other, "seb."+name); err != nil {
			t.Errorf("%s of another topic: %v", name, err)
		}
	}
	a, err := b.Authenticate(t.Context(), bySecret(others))
	if err != nil || a.MaySee("_seb.program") || !a.MaySee("seb.program") {
		t.Errorf("it sees the topic, or not another one: %v", err)
	}
}

func TestKeysThatCannotBeAreRefused(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate(), Limits: seb.Limits{Keys: 2}})
	createKey(t, b, seb.KeyOptions{Name: "ops"})
	for name, test := range map[string]struct {
		opts seb.KeyOptions
		code seb.Code
	}{
		"no name":            {seb.KeyOptions{Scopes: seb.ScopeRead}, seb.CodeInvalidRequest},
		"name with a space":  {seb.KeyOptions{Name: "a b", Scopes: seb.ScopeRead}, seb.CodeInvalidRequest},
		"long name":          {seb.KeyOptions{Name: strings.Repeat("n", 129), Scopes: seb.ScopeRead}, seb.CodeInvalidRequest},
		"name that is taken": {seb.KeyOptions{Name: "ops", Scopes: seb.ScopeRead}, seb.CodeKeyExists},
		"no scope":           {seb.KeyOptions{Name: "a"}, seb.CodeInvalidRequest},
		"unknown scope":      {seb.KeyOptions{Name: "a", Scopes: 16}, seb.CodeInvalidRequest},
		"star in the middle": {seb.KeyOptions{Name: "a", Scopes: 1, Topics: []string{"a*b"}}, seb.CodeInvalidRequest},
		"empty pattern":      {seb.KeyOptions{Name: "a", Scopes: 1, Topics: []string{""}}, seb.CodeInvalidRequest},
		"too many patterns":  {seb.KeyOptions{Name: "a", Scopes: 1, Topics: slices.Repeat([]string{"a"}, 1001)}, seb.CodeInvalidRequest},
		"over already":       {seb.KeyOptions{Name: "a", Scopes: 1, Expires: time.Now().Add(-time.Minute)}, seb.CodeInvalidRequest},
	} {
		if _, secret, err := b.CreateKey(t.Context(), test.opts); seb.CodeOf(err) != test.code || secret != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	k, _ := createKey(t, b, seb.KeyOptions{Name: "second", Scopes: seb.ScopeRead})
	_, _, err := b.CreateKey(t.Context(), seb.KeyOptions{Name: "third", Scopes: seb.ScopeRead})
	wantCode(t, err, seb.CodeTooManyKeys)
	if was, err := b.RevokeKey(t.Context(), k.ID); err != nil || was.Name != "second" {
		t.Fatalf("revoked %+v, %v", was, err)
	}
	_, err = b.RevokeKey(t.Context(), k.ID)
	wantCode(t, err, seb.CodeKeyNotFound)
	createKey(t, b, seb.KeyOptions{Name: "second", Scopes: seb.ScopeRead})
}

func TestExpiredKeyAndTokenAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, objstore.NewMemory(), immediate())
		_, secret := createKey(t, b, seb.KeyOptions{Name: "ops", Expires: time.Now().Add(time.Hour)})
		sign := func(d time.Duration) seb.Credential {
			token, err := seb.SignRead(secret, "t", time.Now().Add(d))
			if err != nil {
				t.Fatal(err)
			}
			return seb.Credential{Token: token, Topic: "t"}
		}
		short, long := sign(time.Minute), sign(10*time.Hour)
		for _, step := range []struct {
			wait               time.Duration
			short, long, plain bool
		}{{0, true, true, true}, {time.Minute - time.Second, true, true, true}, {time.Second, false, true, true}, {time.Hour, false, false, false}} {
			time.Sleep(step.wait)
			for c, want := range map[*seb.Credential]bool{&short: step.short, &long: step.long, {Secret: secret}: step.plain} {
				if _, err := b.Authenticate(t.Context(), *c); (err == nil) != want {
					t.Errorf("after %v: %v, want %v", step.wait, err, want)
				}
			}
		}
	})
}

// Elsewhere the zero time means never. A token that never ends must not result from a time that
// somebody forgot to set.
func TestTokenWithoutAnEndIsNotSigned(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	_, secret := createKey(t, b, seb.KeyOptions{Name: "ops"})
	token, err := seb.SignRead(secret, "t", time.Time{})
	if wantCode(t, err, seb.CodeInvalidRequest); token != "" {
		t.Errorf("the token is %q", token)
	}
}

func TestSignedTokenIsForReadingItsTopicAndDiesWithItsKey(t *testing.T) {
	b := open(t, objstore.NewMemory(), seb.Options{Batching: seb.Immediate()})
	createKey(t, b, seb.KeyOptions{Name: "ops"})
	k, secret := createKey(t, b, seb.KeyOptions{Name: "shop", Scopes: seb.ScopeAdmin, Topics: []string{"orders*"}})
	sign := func(topic string) string {
		token, err := seb.SignRead(secret, topic, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	token := sign("orders")
	a, err := b.Authenticate(t.Context(), seb.Credential{Token: token, Topic: "orders"})
	if err != nil || a.CheckTopic(seb.ScopeRead, "orders") != nil {
		t.Fatal(a, err)
	}
	for _, err := range []error{
		a.CheckTopic(seb.ScopeWrite, "orders"), a.CheckTopic(seb.ScopeAdmin, "orders"), a.CheckAll(seb.ScopeRead),
		a.CheckTopic(seb.ScopeRead, "orders2"), // its key may read this topic
	} {
		wantCode(t, err, seb.CodeForbidden)
	}
	for name, c := range map[string]seb.Credential{
		"another topic": {Token: token, Topic: "orders2"},
		"no topic":      {Token: token},
		"cut off":       {Token: token[:100], Topic: "orders"},
		"another key's": {Token: token[:10] + "B" + token[11:], Topic: "orders"},
		"as a secret":   {Secret: token},
	} {
		if _, err := b.Authenticate(t.Context(), c); seb.CodeOf(err) != seb.CodeUnauthorized {
			t.Errorf("%s: %v", name, err)
		}
	}
	for i := range len(token) {
		bent := []byte(token)
		if bent[i]++; bent[i] == 'z'+1 || bent[i] == 'Z'+1 || bent[i] == '9'+1 {
			bent[i] = 'Q'
		}
		if _, err := b.AuthenticateKnown(seb.Credential{Token: string(bent), Topic: "orders"}); err == nil {
			t.Fatalf("with byte %d changed it is still good", i)
		}
	}
	// A token can't allow more than its key.
	a, err = b.Authenticate(t.Context(), seb.Credential{Token: sign("other"), Topic: "other"})
	if err != nil {
		t.Fatal(err)
	}
	wantCode(t, a.CheckTopic(seb.ScopeRead, "other"), seb.CodeForbidden)
	if _, err := b.RevokeKey(t.Context(), k.ID); err != nil {
		t.Fatal(err)
	}
	_, err = b.Authenticate(t.Context(), seb.Credential{Token: token, Topic: "orders"})
	wantCode(t, err, seb.CodeUnauthorized)
}

// A broker knows what other brokers did to keys within StaleMax, at a bounded cost.
func TestKeysOfOtherBrokersAreKnownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		other := open(t, memory, immediate())
		b := open(t, faulty, immediate())
		time.Sleep(time.Minute)
		_, ops := createKey(t, other, seb.KeyOptions{Name: "ops"})
		_, err := b.Authenticate(t.Context(), seb.Credential{})
		wantCode(t, err, seb.CodeUnauthorized) // at its last sync there was no key
		if _, err := b.Authenticate(t.Context(), bySecret(ops)); err != nil {
			t.Fatal(err)
		}
		k, secret := createKey(t, other, seb.KeyOptions{Name: "shop", Scopes: seb.ScopeRead})
		if _, err := b.Authenticate(t.Context(), bySecret(secret)); err != nil {
			t.Fatalf("a key that is new: %v", err)
		}
		if _, err := other.RevokeKey(t.Context(), k.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second + time.Millisecond)
		_, err = b.Authenticate(t.Context(), bySecret(secret))
		wantCode(t, err, seb.CodeUnauthorized)

		count := func(do func()) int {
			before := faulty.Count(objstore.VerbGet, "")
			do()
			return faulty.Count(objstore.VerbGet, "") - before
		}
		try := func(secret string) { _, _ = b.Authenticate(t.Context(), bySecret(secret)) }
		for name, test := range map[string]struct {
			secret string
			most   int
		}{
			"garbage":       {"garbage", 0},
			"revoked":       {secret, 0},
			"wrong":         {ops[:len(ops)-1] + string(ops[len(ops)-1]^1), 0},
			"yet to come":   {"seb_99_" + secret[6:], 101},
			"one that's in": {ops, 1},
		} {
			n := count(func() {
				for range 100 {
					try(test.secret)
				}
			})
			if n > test.most {
				t.Errorf("%s: a hundred attempts cause %d GETs", name, n)
			}
		}
		began := time.Now()
		many := count(func() {
			done := make(chan struct{})
			for range 1000 {
				go func() { try("seb_99_" + secret[6:]); done <- struct{}{} }()
			}
			for range 1000 {
				<-done
			}
		})
		if seconds := int(time.Since(began) / time.Second); many > seconds+1 || seconds > 2 {
			t.Errorf("a thousand unknown keys at once cause %d GETs in %d s", many, seconds)
		}
	})
}

func TestKeysStayGoodWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, faulty := newFaulty()
		b := open(t, faulty, immediate())
		_, secret := createKey(t, b, seb.KeyOptions{Name: "ops"})
		faulty.SetDown(true)
		defer faulty.SetDown(false)
		time.Sleep(time.Minute)
		for range 3 {
			if _, err := b.Authenticate(t.Context(), bySecret(secret)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
	})
}

func TestWhatGoesOnEndsWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMemory()
		b, other := open(t, store, immediate()), open(t, store, immediate())
		anyone, err := b.Authenticate(t.Context(), seb.Credential{})
		if err != nil {
			t.Fatal(err)
		}
		before, leave := b.While(t.Context(), anyone)
		defer leave()
		access := func(secret string) seb.Access {
			a, err := b.Authenticate(t.Context(), bySecret(secret))
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		ops, secret := createKey(t, b, seb.KeyOptions{Name: "ops"})
		wantCode(t, context.Cause(before), seb.CodeUnauthorized) // the log has keys now
		brief, briefSecret := createKey(t, b, seb.KeyOptions{Name: "brief", Expires: time.Now().Add(time.Hour)})
		_, keptSecret := createKey(t, b, seb.KeyOptions{Name: "kept"})
		kept, leave := b.While(t.Context(), access(keptSecret))
		defer leave()
		gone, leave := b.While(t.Context(), access(secret))
		defer leave()
		over, leave := b.While(t.Context(), access(briefSecret))
		defer leave()
		if _, err := other.RevokeKey(t.Context(), ops.ID); err != nil {
			t.Fatal(err)
		}
		if gone.Err() != nil {
			t.Fatal("it can't know yet")
		}
		mustAppend(t, b, "t", "v") // syncs with the log
		wantCode(t, context.Cause(gone), seb.CodeUnauthorized)
		if over.Err() != nil {
			t.Fatal("another key's access ended")
		}
		<-over.Done()
		wantCode(t, context.Cause(over), seb.CodeUnauthorized)
		if time.Now().Before(brief.Expires) || kept.Err() != nil {
			t.Fatal("ended too early")
		}
	})
}

// A sync that did not reach the end of the log may have read only the first key. After such a sync, the
// broker must not refuse another key as unknown.
func TestGoodKeyIsNotRefusedAfterAPartialSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory, faulty := newFaulty()
		b := open(t, faulty, immediate())
		other := open(t, memory, immediate())
		createKey(t, other, seb.KeyOptions{Name: "ops"})
		_, secret := createKey(t, other, seb.KeyOptions{Name: "ops-2"})
		release := make(chan struct{})
		remove := faulty.On(objstore.VerbGet, format.LogKey(2), storetest.Hold(release))
		time.Sleep(time.Minute) // since its last sync
		done := make(chan error)
		go func() {
			_, err := b.Authenticate(t.Context(), bySecret(secret))
			done <- err
		}()
		time.Sleep(11 * time.Second) // longer than a sync may take
		remove()
		close(release)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestSecretsAreInNoObject(t *testing.T) {
	store := objstore.NewMemory()
	b := open(t, store, seb.Options{Batching: seb.Immediate(), CheckpointCommits: 1})
	var secrets []string
	for i := range 5 {
		_, s := createKey(t, b, seb.KeyOptions{Name: fmt.Sprint("key", i)})
		secrets = append(secrets, s)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	names := 0
	for key, object := range objects(t, store) {
		if bytes.Contains(object, []byte("key3")) {
			names++
		}
		for _, s := range secrets {
			wantNoSecret(t, key, object, s)
		}
	}
	if names < 2 {
		t.Fatalf("%d objects name the key: the test looks in the wrong place", names)
	}
}

// objects returns all objects of a store by key.
func objects(t testing.TB, store objstore.Store) map[string][]byte {
	t.Helper()
	page, err := store.List(t.Context(), "", "", 1000)
	if err != nil || page.More {
		t.Fatal(page.More, err)
	}
	all := map[string][]byte{}
	for _, key := range page.Keys {
		o, err := store.Get(t.Context(), key, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		all[key] = o.Body
	}
	return all
}

// wantNoSecret fails if b holds the secret of a key, as text or as bytes.
func wantNoSecret(t testing.TB, where string, b []byte, secret string) {
	t.Helper()
	digits := secret[strings.LastIndex(secret, "_")+1:]
	raw, err := hex.DecodeString(digits)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range [][]byte{raw, raw[:16], raw[16:], []byte(digits), []byte(digits[:16])} {
		if bytes.Contains(b, s) {
			t.Errorf("%s holds a secret", where)
		}
	}
}
