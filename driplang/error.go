package driplang

import "fmt"

// Error says what is wrong with an expression, and where. Lines and columns count from 1, and columns count characters. Both
// are 0 if the error is about the whole expression.
type Error struct {
	Line, Column int
	Message      string
}

// Error implements error.
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.Message
	}
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

func (p position) errorf(format string, args ...any) *Error {
	return &Error{Line: p.line, Column: p.column, Message: fmt.Sprintf(format, args...)}
}
