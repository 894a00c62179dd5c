package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/oasdiff/yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// document is openapi.yaml, parsed for tests.
//
// To add a route, describe it in openapi.yaml. TestOpenAPIHasEveryRoute names missing
// routes; [document.conforms] checks every answer that a test of this package
// gets; TestOpenAPIExamples plays the examples.
//
// The tests use stricter schemas than readers see: an answer may have no field
// that isn't described, and what is under x-constraints holds too.
type document struct {
	*openapi3.T
	compiler *jsonschema.Compiler

	mu      sync.Mutex
	schemas map[string]*jsonschema.Schema // by JSON pointer
	seen    map[string]bool               // "GET /path 200": answers that conformed
}

const documentName = "openapi.json"

// described loads the document, once.
var described = sync.OnceValues(func() (*document, error) {
	text, err := yaml.YAMLToJSON(openAPI)
	if err != nil {
		return nil, err
	}
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if err := addConstraints(raw); err != nil {
		return nil, err
	}
	if text, err = json.Marshal(raw); err != nil {
		return nil, err
	}
	doc, err := openapi3.NewLoader().LoadFromData(text)
	if err != nil {
		return nil, err
	}
	closeObjects(raw)
	d := &document{T: doc, compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, seen: map[string]bool{}}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	d.compiler.AssertContent()
	return d, d.compiler.AddResource(documentName, raw)
})

func openDocument(t testing.TB) *document {
	t.Helper()
	d, err := described()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return d
}

// addConstraints adds the keywords under x-constraints to the schemas that have them.
func addConstraints(node any) error {
	switch node := node.(type) {
	case map[string]any:
		constraints, _ := node["x-constraints"].(map[string]any)
		delete(node, "x-constraints")
		for keyword, value := range constraints {
			if _, has := node[keyword]; has {
				return fmt.Errorf("the schema has %s, and x-constraints too", keyword)
			}
			node[keyword] = value
		}
		for _, child := range node {
			if err := addConstraints(child); err != nil {
				return err
			}
		}
	case []any:
		for _, child := range node {
			if err := addConstraints(child); err != nil {
				return err
			}
		}
	}
	return nil
}

// closeObjects makes every schema with properties refuse other properties.
func closeObjects(node any) {
	switch node := node.(type) {
	case map[string]any:
		for _, child := range node {
			closeObjects(child)
		}
		_, has := node["properties"].(map[string]any)
		if _, open := node["additionalProperties"]; node["type"] == "object" && has && !open {
			node["additionalProperties"] = false
		}
	case []any:
		for _, child := range node {
			closeObjects(child)
		}
	}
}

// check validates value by the schema at pointer.
func (d *document) check(pointer string, value any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	schema := d.schemas[pointer]
	if schema == nil {
		var err error
		if schema, err = d.compiler.Compile(documentName + pointer); err != nil {
			return err
		}
		d.schemas[pointer] = schema
	}
	return schema.Validate(value)
}

// operation returns the description of method at path, a pattern of the handler; nil
// if there is none. HEAD has the description of GET.
func (d *document) operation(method, path string) *openapi3.Operation {
	item := d.Paths.Value(path)
	if item == nil {
		return nil
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return item.GetOperation(method)
}

// credentials returns the names of the credentials that callers of op may send; none if they
// need none.
func (d *document) credentials(op *openapi3.Operation) []string {
	required := d.Security
	if op.Security != nil {
		required = *op.Security
	}
	names := []string{}
	for _, r := range required {
		names = slices.AppendSeq(names, maps.Keys(r))
	}
	return names
}

// answerAt is the description of an answer, with its JSON pointer.
type answerAt struct {
	*openapi3.Response
	pointer string
}

// shared returns the description with that name from components/responses.
func (d *document) shared(name string) answerAt {
	return answerAt{d.Components.Responses[name].Value, "#/components/responses/" + name}
}

// answerTo returns the description of the answer with status to method at path.
func (d *document) answerTo(method, path string, status int) (answerAt, error) {
	op := d.operation(method, path)
	switch {
	case d.Paths.Value(path) == nil && status == http.StatusInternalServerError:
		return d.shared("ServerError"), nil // a test adds a route that panics
	case d.Paths.Value(path) == nil:
		return d.shared("RouteNotFound"), nil
	case op == nil && slices.Contains(originalPaths, path):
		return d.shared("PlainMethodNotAllowed"), nil
	case op == nil:
		return d.shared("MethodNotAllowed"), nil
	}
	ref := op.Responses.Value(strconv.Itoa(status))
	if ref == nil {
		return answerAt{}, errors.New("this status is not described")
	}
	if ref.Ref != "" {
		return answerAt{ref.Value, ref.Ref}, nil
	}
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return answerAt{ref.Value, fmt.Sprintf("#/paths/%s/%s/responses/%d", escapePointer(path), strings.ToLower(method), status)}, nil
}

// media returns the description of mediaType, and the JSON pointer of its
// schema.
func (a answerAt) media(mediaType string) (content *openapi3.MediaType, pointer string) {
	name, _, _ := strings.Cut(mediaType, ";")
	for _, name := range []string{strings.TrimSpace(name), "*/*"} {
		if m := a.Content[name]; m != nil {
			return m, a.pointer + "/content/" + escapePointer(name)
		}
	}
	return nil, ""
}

// escapePointer escapes a name for a JSON pointer in a URL.
func escapePointer(s string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(s)
}

// each calls f for every answer of every operation, and of components/responses.
func (d *document) each(f func(where string, status string, a *openapi3.Response)) {
	for path, item := range d.Paths.Map() {
		for method, op := range item.Operations() {
			for status, a := range op.Responses.Map() {
				f(method+" "+path, status, a.Value)
			}
		}
	}
	for _, name := range []string{"RouteNotFound", "MethodNotAllowed"} { // belong to no operation
		a := d.Components.Responses[name].Value
		f(name, problemStatus(a), a)
	}
	f("PlainMethodNotAllowed", strconv.Itoa(http.StatusMethodNotAllowed), d.Components.Responses["PlainMethodNotAllowed"].Value)
}

// problemStatus returns the status that the schema of a problem demands; "" if a
// is not a problem.
func problemStatus(a *openapi3.Response) string {
	for _, s := range problemSchemas(a) {
		if p := s.Properties["status"]; p != nil && p.Value.Const != nil {
			return fmt.Sprint(p.Value.Const)
		}
	}
	return ""
}

// isPlain tells whether a is an error in plain text, as on the original's paths.
func isPlain(a *openapi3.Response) bool { return a.Extensions["x-codes"] != nil }

// problemCodes returns the codes that the schema of a problem allows; for an
// error in plain text, the codes in x-codes.
func problemCodes(a *openapi3.Response) []string {
	codes := listed(a.Extensions, "x-codes")
	for _, s := range problemSchemas(a) {
		if p := s.Properties["code"]; p != nil {
			for _, code := range p.Value.Enum {
				codes = append(codes, code.(string))
			}
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// problemSchemas returns the schema of a problem, with the schemas that refine it next to its $ref.
func problemSchemas(a *openapi3.Response) []*openapi3.Schema {
	m := a.Content["application/problem+json"]
	if m == nil {
		return nil
	}
	schemas := []*openapi3.Schema{m.Schema.Value}
	for _, s := range m.Schema.Value.AllOf {
		schemas = append(schemas, s.Value)
	}
	return schemas
}
