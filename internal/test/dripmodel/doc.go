// Package dripmodel decides triggers as RFC 0006 states them, without any cleverness: each verdict is computed from all events of
// an entity, for each run at each moment. Tests compare faster evaluators with it. It also makes random expressions and histories.
//
// An operand is always decided in the context of the moment at which it is asked: at the deadline of a window around it all its
// leaves are decided, and at earlier moments they were open.
package dripmodel
