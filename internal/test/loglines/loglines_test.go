package loglines

import "testing"

func TestFaultyLinesAreFound(t *testing.T) {
	for line, faulty := range map[string]bool{
		`time=1 level=DEBUG msg="pushed a message" outcome=delivered err=<nil>`:                                       true,
		`{"level":"INFO","msg":"x","err":null}`:                                                                       true,
		`level=WARN msg=x err="get seb.json: get seb.json: no answer"`:                                                true,
		`level=WARN msg=x err="read back log/1: get log/1: no answer"`:                                                true,
		`level=WARN msg=x err="get seb.json: no answer"`:                                                              false,
		`level=WARN msg=x err="operation error S3: GetObject"`:                                                        true,
		`level=DEBUG msg=x err="operation error S3: GetObject"`:                                                       false,
		`level=INFO msg=request method=GET status=400 error="invalid_request: no (outcome: not_committed)"`:           true,
		`{"level":"INFO","msg":"request","method":"GET","status":400,"error":"invalid (outcome: not_committed); x"}`:  true,
		`{"level":"INFO","msg":"request","method":"POST","status":400,"error":"invalid (outcome: not_committed); x"}`: false,
		`{"level":"INFO","msg":"request","duration":12345}`:                                                           true,
		`{"level":"INFO","msg":"request","duration_seconds":0.01}`:                                                    false,
		`level=INFO msg=request duration=1.5ms`:                                                                       false,
		`level=INFO msg=x !BADKEY=1`:                                                                                  true,
		`level=INFO msg="%!d(string=x)"`:                                                                              true,
	} {
		if fault := Fault(line); (fault != "") != faulty {
			t.Errorf("%s: %q", line, fault)
		}
	}
}
