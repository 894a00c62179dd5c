package httpapi

import (
	_ "embed"
	"net/http"
)

// openAPI is an OpenAPI 3.1 document that describes every route.
//
//go:embed openapi.yaml
var openAPI []byte

// typeYAML is the media type that RFC 9512 defines.
const typeYAML = "application/yaml"

func (h *Handler) getOpenAPI(w *response, r *http.Request) error {
	if _, err := parseQuery(r); err != nil {
		return err
	}
	return writeBody(w, http.StatusOK, typeYAML, openAPI)
}
