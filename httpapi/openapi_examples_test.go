package httpapi

import (
	"maps"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Examples with the same name make an exchange: the request has the examples of the parameters
// and of the body, and the answer must have the status, media type and body of the answer's example.
// If a required parameter has no example of that name, its example "usual" is sent. Answers without a
// body, or with a body that is not worth showing, list the names under x-examples.
//
// A shared answer has examples of several operations. An operation plays only those whose
// names its request has, or lists under x-examples.
//
// Each exchange is played with a new broker. Its topic orders has the records ordered, paid
// and shipped, appended with the idempotency key the-first-three; the consumers audit, at the
// end, and billing, at paid; and the queue mail, which is pushed, in which ordered is
// a dead letter and paid is leased. Its topic payments has two empty partitions and the
// queue refunds. It has the API keys ops, which may do everything and is sent by default, and
// dashboard, which may read orders; [keys.shownIn] says which examples send something else.
//
// Exchanges about triggers are played with a broker that has the topic orders with one record, and the trigger nudge.
//
// The example of a form is an object with the form's fields.
func TestOpenAPIExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("nothing goes on at once")
	}
	d := openDocument(t)
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			played := map[string]bool{}
			for status, a := range op.Responses.Map() {
				for name, want := range examplesOf(t, a.Value) {
					if a.Ref != "" && !asksFor(op, name) {
						continue // an example of another operation
					}
					played[name] = true
					t.Run(method+path+"/"+name, func(t *testing.T) { d.play(t, method, path, name, status, want) })
				}
			}
			if len(played) == 0 {
				t.Errorf("%s %s has no example", method, path)
			}
			for _, name := range requestExamples(op) {
				if !played[name] {
					t.Errorf("%s %s: example %s of the request has no answer", method, path, name)
				}
			}
		}
	}
}

// shown is an example of an answer's body.
type shown struct {
	mediaType string // "" if the body is not shown
	value     any
}

// examplesOf returns the examples of a, by name.
func examplesOf(t *testing.T, a *openapi3.Response) map[string]shown {
	t.Helper()
	found := map[string]shown{}
	for mediaType, content := range a.Content {
		for name, example := range content.Examples {
			found[name] = shown{mediaType, example.Value.Value}
		}
	}
	for _, name := range listed(a.Extensions, "x-examples") {
		found[name] = shown{}
	}
	return found
}

// requestExamples returns the names of the examples of op's request.
func requestExamples(op *openapi3.Operation) []string {
	names := map[string]bool{}
	for _, p := range op.Parameters {
		for name := range p.Value.Examples {
			names[name] = true
		}
	}
	if op.RequestBody != nil {
		for _, content := range op.RequestBody.Value.Content {
			for name := range content.Examples {
				names[name] = true
			}
		}
	}
	delete(names, "usual")
	return slices.Sorted(maps.Keys(names))
}

// asksFor tells whether op plays a shared answer's example with that name.
func asksFor(op *openapi3.Operation, name string) bool {
	return slices.Contains(requestExamples(op), name) || slices.Contains(listed(op.Extensions, "x-examples"), name)
}

// listed returns the names that an extension lists.
func listed(extensions map[string]any, extension string) []string {
	var names []string
	list, _ := extensions[extension].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	return names
}
