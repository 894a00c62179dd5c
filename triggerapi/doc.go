// Package triggerapi is the part of the HTTP API that is about triggers and their language:
//
//	triggers := trigger.Open(broker, trigger.Options{})
//	api := httpapi.New(broker, httpapi.Options{Triggers: triggerapi.New(triggers)})
//
// Package httpapi checks the access of callers, reads bodies, and writes errors. The packages are separate, so that only programs
// that import this one link CEL.
package triggerapi
