package driplang

import (
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// CEL bounds the cost of an evaluation, but counts each operation when it is done, and some as one unit whatever their size. These
// limits keep a single operation, and the check of types before it, from taking long.
const (
	maxLoops   = 3   // macros such as all() and map() in each other, or over the result of each other
	maxGrowth  = 200 // the uses of the variables of loops in each other, multiplied: how much larger a value can become
	maxPattern = 200 // instructions of a regular expression
)

// checkBounds checks what can be seen before types are known: with a map() over the result of a map(), types and values may double
// with each step.
func checkBounds(parsed *cel.Ast) error {
	native := parsed.NativeRep()
	var check func(e ast.Expr, loops, growth int) error
	check = func(e ast.Expr, loops, growth int) error {
		message := ""
		switch e.Kind() {
		case ast.ComprehensionKind:
			c := e.AsComprehension()
			loops++
			growth *= max(1, uses(c.LoopCondition(), c.IterVar())+uses(c.LoopStep(), c.IterVar()))
			if loops > maxLoops {
				message = fmt.Sprintf("more than %d macros such as all() or map() in each other, or behind each other", maxLoops)
			} else if growth > maxGrowth {
				message = fmt.Sprintf("the variables of macros in each other are used too often: multiplied, more than %d times", maxGrowth)
			}
		case ast.CallKind:
			message = wrongCall(e.AsCall())
		default: // has no limit
		}
		if message != "" {
			at := native.SourceInfo().GetStartLocation(e.ID())
			return fmt.Errorf("at %d:%d: %s", at.Line(), at.Column()+1, message)
		}
		for _, child := range children(e) {
			if err := check(child, loops, growth); err != nil {
				return err
			}
		}
		return nil
	}
	return check(native.Expr(), 0, 1)
}

// uses counts how often an expression uses a variable.
func uses(e ast.Expr, name string) (n int) {
	if e.Kind() == ast.IdentKind && e.AsIdent() == name {
		return 1
	}
	for _, child := range children(e) {
		n += uses(child, name)
	}
	return n
}

// wrongCall says why a call can't be bounded, or depends on the machine that evaluates it.
func wrongCall(call ast.CallExpr) string {
	args := call.Args()
	if len(args) == 0 {
		return ""
	}
	last := ""
	literal := args[len(args)-1].Kind() == ast.LiteralKind
	if literal {
		last, literal = args[len(args)-1].AsLiteral().Value().(string)
	}
	switch name := call.FunctionName(); {
	case name == overloads.Matches && !literal:
		return "the pattern of matches() has to be a string in the condition, not in data"
	case name == overloads.Matches:
		if size, err := types.RegexProgramSize(last); err == nil && size > maxPattern {
			return fmt.Sprintf("the pattern of matches() compiles to %d instructions: at most %d are allowed", size, maxPattern)
		}
	case strings.HasPrefix(name, "get") && (!literal || last == "Local"):
		return `the time zone has to be a string in the condition, such as "UTC" or "Europe/Berlin", and not "Local"`
	}
	return ""
}

// sizedCosts counts the cost of operators that CEL counts as one unit if it does not know the types of their operands, or as that
// of the outermost list.
type sizedCosts struct{ sizes *types.SizeCalculator }

// The calculator counts 10 characters or one entry as 1. What is too large for it is too large for the limit too.
var costs = sizedCosts{types.NewSizeCalculator(types.SizeCalculatorMaxDepth(20_000), types.SizeCalculatorMaxTraversal(10*CostMax))}

// CallCost implements cost.ActualCostEstimator.
func (s sizedCosts) CallCost(function, _ string, args []ref.Val, result ref.Val) *uint64 {
	for _, arg := range args {
		switch arg.(type) {
		case types.Int, types.Double, types.Bool, types.Null:
			if function != operators.In {
				return nil // an operation with it takes 1 unit, whatever the other operand is
			}
		}
	}
	size := func(v ref.Val) uint64 { return uint64(s.sizes.AggregateSize(v)) }
	var cost uint64
	switch function {
	case operators.Add:
		if list, ok := result.(traits.Lister); ok {
			n, _ := list.Size().(types.Int)
			cost = uint64(n) / 10 // nothing is copied, but what goes through the list has to
		} else {
			cost = size(result)
		}
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		cost = min(size(args[0]), size(args[1]))
	case operators.In:
		if _, ok := args[1].(traits.Lister); ok {
			cost = size(args[1])
		}
	case overloads.Size, overloads.TypeConvertString, overloads.TypeConvertBytes, overloads.TypeConvertBool, overloads.TypeConvertInt,
		overloads.TypeConvertUint, overloads.TypeConvertDouble, overloads.TypeConvertDuration, overloads.TypeConvertTimestamp:
		if _, ok := args[0].(traits.Indexer); !ok { // a string or bytes
			cost = size(args[0])
		}
	default:
		return nil
	}
	cost++
	return &cost
}
