// Package generated is where the tests put the code that oapi-codegen generates from openapi.yaml.
package generated

// What the generated code imports.
import _ "github.com/oapi-codegen/runtime"
