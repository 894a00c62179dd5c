package objstore

import "errors"

// ErrFull says that the store has no room for an object. It is definite: a Create that returns it has created
// nothing, not even in part, and never will. If the object exists, most stores return [ErrExists], also while they are
// full; a store that checks a quota first returns ErrFull.
var ErrFull = errors.New("the store is full")

// Failure says in words for an operator why a store can't execute a request. Its text is one clause without
// the texts of programs below, such as an SDK; those are in Err.
type Failure struct {
	// Detail is the cause, such as "the bucket orders does not exist".
	Detail string
	// Hint is what an operator has to do, with the names of the settings; "" if a retry may help.
	Hint string
	// Setup is true if the cause is how the store, or this program, is set up: no retry helps before an
	// operator has changed that.
	Setup bool
	// Full is true if the store says that it has no room. Unless Err wraps [ErrFull], a refused Create may still
	// have created its object.
	Full bool
	// Err is the error in the words of the program that reported it.
	Err error
}

// Error implements error.
func (f *Failure) Error() string { return f.Detail }

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }

// FailureOf returns the Failure in err, or nil if there is none.
func FailureOf(err error) *Failure {
	f, _ := errors.AsType[*Failure](err)
	return f
}

// SetupFailureOf returns the Failure in err if no retry helps before an operator has changed how the store, or
// this program, is set up. Otherwise it returns nil.
func SetupFailureOf(err error) *Failure {
	if f := FailureOf(err); f != nil && f.Setup {
		return f
	}
	return nil
}
