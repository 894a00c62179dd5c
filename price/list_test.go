package price

import (
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/simple-event-broker/seb"
)

func TestCostsOfRequestsAndOfStorage(t *testing.T) {
	l := List{ClassA: 5, ClassB: 0.4, Storage: 0.02, Sent: 0.5, Received: 0.25}
	for want, u := range map[float64]seb.StoreUse{
		15: {Creates: 2e6, Lists: 1e6}, 4: {Gets: 1e7}, 1: {SentBytes: 2e9}, 2: {ReceivedBytes: 8e9}, 0: {Deletes: 1e9},
	} {
		if got := l.OfRequests(u); math.Abs(got-want) > 1e-9 {
			t.Errorf("%+v costs $%v, not $%v", u, got, want)
		}
	}
	if got := l.OfStorage(50e9); got != 1 {
		t.Errorf("50 GB cost $%v", got)
	}
}

func TestPricesThatCannotBe(t *testing.T) {
	for _, l := range []List{{ClassA: -1}, {ClassB: math.NaN()}, {Storage: math.Inf(1)}, {Sent: 1e7}, {Received: -1}} {
		if l.Check() == nil {
			t.Errorf("%+v passes", l)
		}
	}
	for _, name := range Names() {
		l := Named(name)
		if err := l.Check(); err != nil || l.Name != name || l.Of == "" || l.AsOf == "" || !strings.HasPrefix(l.Source, "https://") {
			t.Errorf("%+v: %v", l, err)
		}
	}
	if Named("b2") != nil {
		t.Error("a list without a source has a name")
	}
}

func TestPricesGoByTheServersName(t *testing.T) {
	for endpoint, want := range map[string]string{
		"":                                   "s3",
		"https://s3.eu-west-1.amazonaws.com": "s3",
		"https://s3express-use1-az4.us-east-1.amazonaws.com": "s3-express",
		"https://abc.r2.cloudflarestorage.com":               "r2",
		"https://T3.storage.dev":                             "tigris",
		"https://fsn1.your-objectstorage.com:443":            "hetzner",
		"https://storage.googleapis.com":                     "gcs",
		"http://127.0.0.1:7070":                              "",
		"https://amazonaws.com.example":                      "",
		"https://notamazonaws.com":                           "",
		"https://s3express-x.example":                        "",
		"::":                                                 "",
	} {
		got := ""
		if l := At(endpoint); l != nil {
			got = l.Name
		}
		if got != want {
			t.Errorf("the prices of %q are %q, not %q", endpoint, got, want)
		}
	}
}

// The prices of each provider are those on its page in docs/stores, or on the page about the bill.
func TestPricesAreThoseOfThePages(t *testing.T) {
	for _, p := range providers {
		file := "../docs/stores/" + p.list.Name + ".md"
		if _, err := os.Stat(file); err != nil {
			file = "../docs/operations.md"
		}
		page, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{p.list.Source}
		if p.list.ClassA > 0 {
			want = append(want, fmt.Sprintf("storage $%v a GB", p.list.Storage))
			if p.list.Name == "r2" || strings.HasSuffix(file, "operations.md") {
				want = append(want, fmt.Sprintf("LIST $%.2f a million", p.list.ClassA), fmt.Sprintf("GET $%v a million", p.list.ClassB))
			} else {
				want = append(want, fmt.Sprintf("LIST $%v a thousand", p.list.ClassA/1e3), fmt.Sprintf("GET $%v a thousand", p.list.ClassB/1e3))
			}
		}
		if p.list.Sent > 0 {
			want = append(want, fmt.Sprintf("$%v a GB sent", p.list.Sent), fmt.Sprintf("$%v a GB received", p.list.Received))
		}
		for _, w := range want {
			if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), w) {
				t.Errorf("%s lacks %q", file, w)
			}
		}
	}
}
