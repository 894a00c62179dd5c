package httpapi

import (
	_ "embed"
	"net/http"
)

// openAPI describes every route: an OpenAPI 3.1 document.
//
//go:embed openapi.yaml
var openAPI []byte

// typeYAML is RFC 9512's.
const typeYAML = "application/yaml"

func (h *Handler) getOpenAPI(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	return writeBody(w, http.StatusOK, typeYAML, openAPI)
}
