package httpapi

import (
	"maps"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// Examples of one name make an exchange: those of the parameters and of the
// body are sent, and the answer must be the one that has an example of that name
// under its status and media type. A required parameter without an example of
// the name takes its "usual" one. Answers without a body, or with one that is
// not worth showing, list the names under x-examples.
//
// What operations share has the examples of all of them: an operation takes part
// in those that its request has, or that it lists under x-examples.
//
// Each is played to a broker of its own, which has topic payments, with two
// partitions and nothing in it, and topic orders, with the records ordered, paid
// and shipped, which were appended under the idempotency key the-first-three, and
// with the consumers audit, at its end, and billing, at paid, and the queue mail, where
// ordered is parked and paid is with a worker, and which is pushed; payments has the queue
// refunds. It has the keys ops, which may do everything and is sent along, and dashboard,
// which may read orders; [keys.shownIn] says which examples show something else.
//
// An example of a form is an object of its fields.
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
						continue // another operation's
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
	mediaType string // "" if it is not shown
	value     any
}

// examplesOf returns the answers that a's examples show, by name.
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

// requestExamples returns the names of op's own examples.
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

// asksFor tells whether op takes part in an example of what operations share.
func asksFor(op *openapi3.Operation, name string) bool {
	return slices.Contains(requestExamples(op), name) || slices.Contains(listed(op.Extensions, "x-examples"), name)
}

// listed returns the names that stand under an extension.
func listed(extensions map[string]any, extension string) []string {
	var names []string
	list, _ := extensions[extension].([]any)
	for _, name := range list {
		names = append(names, name.(string))
	}
	return names
}
