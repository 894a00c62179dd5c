package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestAdvertisedAddress(t *testing.T) {
	for _, c := range []struct {
		flag, listening, cert, want string
	}{
		{"", "127.0.0.1:51313", "", ""},
		{"", "[::1]:51313", "", ""},
		{"http://127.0.0.1:0", "127.0.0.1:51313", "", "http://127.0.0.1:51313"},
		{"https://[::1]:0", "[::]:8080", "cert.pem", "https://[::1]:8080"},
		{"http://127.0.0.1:51313", "127.0.0.1:51313", "", "http://127.0.0.1:51313"},
		{"", "10.0.0.5:80", "cert.pem", "https://10.0.0.5:80"},
		{"", "[2001:db8::1]:51313", "", "http://[2001:db8::1]:51313"},
		{"", "0.0.0.0:51313", "", ""},
		{"", "[::]:51313", "", ""},
		{"https://broker-1.example:443", "0.0.0.0:51313", "", "https://broker-1.example:443"},
		{"http://[2001:db8::1]", "0.0.0.0:51313", "", "http://[2001:db8::1]"},
	} {
		addr, err := net.ResolveTCPAddr("tcp", c.listening)
		if err != nil {
			t.Fatal(err)
		}
		cmd := serveCmd{Advertise: c.flag}
		cmd.TLSCert = c.cert
		if err := cmd.checkAdvertise(); err != nil {
			t.Errorf("%s: %v", c.flag, err)
		}
		if got := cmd.advertised(addr); got != c.want {
			t.Errorf("%+v: advertised is %q", c, got)
		}
	}
	for _, bad := range []string{"10.0.0.5:51313", "broker", "ftp://broker", "http://", "http://broker/path", "http://user@broker", "http://broker?x=y", "http://broker?", "http://broker#", "http://bro ker", "http://broker:65536", "http://0.0.0.0:51313", "http://[::]:51313"} {
		if (&serveCmd{Advertise: bad}).checkAdvertise() == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// A worker gets the queue's next record from whichever broker it asks, also over TLS with a certificate
// that the system does not trust.
func TestBrokersPassOnWhatIsTheOwners(t *testing.T) {
	dir := t.TempDir()
	ca, ofClients := newAuthority(t, dir, "ca"), newAuthority(t, dir, "clients")
	cert, key, _ := ca.issue("server", "server")
	roots := x509.NewCertPool()
	roots.AddCert(parsedCertificate(t, ca.file))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
	for name, flags := range map[string][]string{
		"HTTP":  {"--advertise", "http://127.0.0.1:0"},
		"HTTPS": {"--advertise", "https://127.0.0.1:0", "--tls-cert", cert, "--tls-key", key},
		"HTTPS with clients of another authority": {"--advertise", "https://127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ofClients.file},
	} {
		t.Run(name, func(t *testing.T) {
			store := t.TempDir()
			args := append([]string{"--store", store, "--linger", "1ms"}, flags...)
			one, two := serve(t, nil, args...), serve(t, nil, args...)
			ask := func(method, url, body string, want int) string {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp, err := client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				text, err := io.ReadAll(resp.Body)
				if err != nil || resp.StatusCode != want {
					t.Fatalf("%s %s: %d %s, %v", method, url, resp.StatusCode, text, err)
				}
				return string(text)
			}
			const queue = "/v1/topics/orders/queues/mail"
			ask("POST", one.url+"/v1/topics/orders/records", "x", http.StatusCreated)
			ask("PUT", one.url+queue, "", http.StatusCreated)
			ask("POST", one.url+queue+"/receive", "", http.StatusOK)
			ask("POST", two.url+"/v1/topics/orders/records", "y", http.StatusCreated)
			if got := ask("POST", two.url+queue+"/receive", `{"wait":"20s"}`, http.StatusOK); !strings.Contains(got, `"value":"y"`) {
				t.Errorf("the second broker hands out %s", got)
			}
			var told struct {
				Owner  string
				Leased int
			}
			if text := ask("GET", two.url+queue, "", http.StatusOK); json.Unmarshal([]byte(text), &told) != nil || told.Owner != one.url || told.Leased != 2 {
				t.Errorf("the second broker tells %s", text)
			}
			one.stopped(t)
			two.stopped(t)
		})
	}
}
