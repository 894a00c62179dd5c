package main

import (
	"testing"

	"github.com/simple-event-broker/seb/objstore/s3store"
)

func TestPricesGoByTheStore(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "id")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_CONFIG_FILE", t.TempDir()+"/none")
	for _, test := range []struct{ store, endpoint, flag, want string }{
		{store: "memory:", want: "own"},
		{store: "s3://bucket", want: "s3"},
		{store: "s3://bucket?endpoint=https://s3.eu-west-1.amazonaws.com", want: "s3"},
		{store: "s3://bucket?endpoint=https://abc.r2.cloudflarestorage.com", want: "r2"},
		{store: "s3://bucket?endpoint=https://T3.storage.dev", want: "tigris"},
		{store: "s3://bucket?endpoint=https://fsn1.your-objectstorage.com:443", want: "hetzner"},
		{store: "s3://bucket?endpoint=http://127.0.0.1:7070"},
		{store: "s3://bucket?endpoint=https://amazonaws.com.example"},
		{store: "s3://bucket?endpoint=https://notamazonaws.com"},
		{store: "s3://bucket", endpoint: "http://127.0.0.1:7070"},
		{store: "s3://bucket", flag: "none"},
		{store: "s3://bucket", flag: "own", want: "own"},
		{store: "s3://bucket?endpoint=http://127.0.0.1:7070", flag: "tigris", want: "tigris"},
		{store: "memory:", flag: " 1, 2.5 ,0", want: "given"},
	} {
		t.Setenv("AWS_ENDPOINT_URL", test.endpoint)
		store, _, err := storeFlag{Store: test.store}.open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var flag pricesFlag
		if test.flag != "" {
			if err := flag.UnmarshalText([]byte(test.flag)); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		if p := flag.of(store); p != nil {
			got = p.Name
			if err := p.Check(); err != nil {
				t.Errorf("%s: %v", got, err)
			}
		}
		if got != test.want {
			t.Errorf("%+v: the prices are %q, not %q", test, got, test.want)
		}
	}
	var _ interface{ Endpoint() string } = (*s3store.Store)(nil) // prices depend on this method
}

func TestPricesInNumbers(t *testing.T) {
	var flag pricesFlag
	if err := flag.UnmarshalText([]byte("10,1.5,0.1")); err != nil {
		t.Fatal(err)
	}
	if p := flag.prices; p.ClassA != 10 || p.ClassB != 1.5 || p.Storage != 0.1 {
		t.Errorf("%+v", p)
	}
}

func TestDollarsSayAsMuchAsCounts(t *testing.T) {
	for d, want := range map[float64]string{0: "$0.00", 52: "$52.00", 0.4567: "$0.46", 0.000131: "$0.000131", 4e-7: "less than $0.000001"} {
		if got := dollars(d); got != want {
			t.Errorf("%v is %s, not %s", d, got, want)
		}
	}
}

// Any value of --prices is refused, or gives valid prices.
func FuzzPrices(f *testing.F) {
	f.Add("s3")
	f.Add("5,0.4,0.023")
	f.Add("1e400,NaN,-0")
	f.Fuzz(func(t *testing.T, text string) {
		var flag pricesFlag
		if err := flag.UnmarshalText([]byte(text)); err != nil {
			return
		}
		if flag.prices == nil != (text == pricesNone) {
			t.Fatalf("%q became %v", text, flag.prices)
		}
		if flag.prices != nil {
			if err := flag.prices.Check(); err != nil {
				t.Fatalf("%q became %+v: %v", text, flag.prices, err)
			}
		}
	})
}
