package driplang

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
)

// CostMax bounds the cost of one evaluation of a condition, in the cost units of CEL: about one unit for each operator, and
// for each 10 characters that a function on strings looks at. An evaluation beyond it fails.
const CostMax = 100_000

// Limits of the text of a condition.
const (
	maxCondition     = 4096    // characters
	maxConditionDeep = 50      // expressions in each other
	sizeMax          = 1 << 20 // bytes of a string, or entries of a list, in a record
	// Counting the cost takes as much time as the evaluation. The cost of expressions that can't have more than this is not
	// counted: a comparison of two strings of 1 MiB has 100,000 units, and takes 50 microseconds.
	untracked = 10 * CostMax
)

// Condition is a compiled expression in CEL, for example a condition of an event.
type Condition struct {
	program cel.Program
	result  *cel.Type
	uses    []Field
	cost    uint64
}

// Field is a field of an earlier event that a condition uses: the alias of the event, and the names of the fields that lead to
// it, for example "u" and "data", "plan". Path is empty if the condition uses the event as a whole.
type Field struct {
	Alias string
	Path  []string
}

// environment is what all conditions share.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	return cel.NewEnv(
		cel.CustomTypeAdapter(adapter{registry}),
		cel.Variable("data", cel.DynType),
		cel.Variable("key", cel.StringType),
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("topic", cel.StringType),
		cel.Variable("time", cel.TimestampType),
		cel.Variable("log_time", cel.TimestampType),
		cel.CrossTypeNumericComparisons(true),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxCondition),
		cel.ParserRecursionLimit(maxConditionDeep),
	)
})

// CompileCondition compiles an expression in CEL that may use the variables data, key, headers, topic, time and log_time of an
// event, and earlier events by their aliases, with the same variables as fields.
func CompileCondition(text string, aliases ...string) (*Condition, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	var variables []cel.EnvOption
	for _, a := range aliases {
		variables = append(variables, cel.Variable(a, cel.DynType))
	}
	if env, err = env.Extend(variables...); err != nil {
		return nil, fmt.Errorf("set up CEL: %w", err)
	}
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return nil, celError(issues)
	}
	if err := checkBounds(parsed); err != nil {
		return nil, err
	}
	if parsed, issues = env.Check(parsed); issues.Err() != nil {
		return nil, celError(issues)
	}
	c := &Condition{result: parsed.OutputType(), uses: fieldsOf(parsed.NativeRep().Expr(), aliases)}
	estimate, err := env.EstimateCost(parsed, sizes{})
	if err != nil {
		return nil, fmt.Errorf("estimate the cost: %w", err)
	}
	if estimate.Min > CostMax {
		return nil, fmt.Errorf("an evaluation costs at least %d units: at most %d are allowed", estimate.Min, CostMax)
	}
	c.cost = estimate.Max
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize), cel.CustomDecoratorV2(orderMaps)}
	if c.cost > untracked || hasLoop(parsed.NativeRep().Expr()) {
		options = append(options, cel.CostTracking(costs), cel.CostLimit(CostMax))
	}
	if c.program, err = env.Program(parsed, options...); err != nil {
		return nil, err
	}
	return c, nil
}

// celError returns the first error of CEL, with its place in the condition.
func celError(issues *cel.Issues) error {
	first := issues.Errors()[0]
	message, _, _ := strings.Cut(first.Message, " (in container")
	return fmt.Errorf("at %d:%d: %s", first.Location.Line(), first.Location.Column()+1, message)
}

// Cost returns the most that an evaluation can cost, if records have at most 1 MiB, and not more than [CostMax].
func (c *Condition) Cost() uint64 { return min(c.cost, CostMax) }

// Uses returns the fields of earlier events that the condition uses, sorted.
func (c *Condition) Uses() []Field { return c.uses }

// Value evaluates the expression for an event. alias returns what is known of an earlier event, as [Event.Variables] does.
func (c *Condition) Value(e *Event, alias func(string) (any, bool)) (any, error) {
	out, _, err := c.program.Eval(&activation{event: e, alias: alias})
	if err != nil {
		return nil, err
	}
	return out.Value(), nil
}

// Holds evaluates the expression for an event as a condition. The error says why it could not be decided: a field is missing,
// or has another type.
func (c *Condition) Holds(e *Event, alias func(string) (any, bool)) (bool, error) {
	v, err := c.Value(e, alias)
	if err != nil {
		return false, err
	}
	holds, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("the condition is %T, not true or false", v)
	}
	return holds, nil
}

// Variables returns the variables of the event: what conditions of later events see as the fields of its alias.
func (e *Event) Variables() map[string]any {
	all := map[string]any{}
	for _, name := range variables {
		all[name], _ = e.variable(name)
	}
	return all
}

var variables = []string{"data", "key", "headers", "topic", "time", "log_time"}

func (e *Event) variable(name string) (any, bool) {
	switch name {
	case "data":
		return e.Data, true
	case "key":
		return e.Key, true
	case "headers":
		return e.Headers, true
	case "topic":
		return e.Topic, true
	case "time":
		return e.Timestamp, true
	case "log_time":
		return e.LogTime, true
	}
	return nil, false
}

// activation gives CEL the variables of an evaluation.
type activation struct {
	event *Event
	alias func(string) (any, bool)
}

// ResolveName implements cel.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	if v, ok := a.event.variable(name); ok {
		return v, true
	}
	if a.alias == nil {
		return nil, false
	}
	return a.alias(name)
}

// Parent implements cel.Activation.
func (a *activation) Parent() cel.Activation { return nil }

// hasLoop reports whether a macro in the expression loops over a list or a map.
func hasLoop(e ast.Expr) bool {
	return e.Kind() == ast.ComprehensionKind || slices.ContainsFunc(children(e), hasLoop)
}

// sized are the types whose values can be large.
var sized = []types.Kind{types.StringKind, types.BytesKind, types.ListKind, types.MapKind, types.DynKind}

// sizes estimates the sizes of values of which CEL knows nothing: those of records.
type sizes struct{}

// EstimateSize implements cost.Estimator.
func (sizes) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	if !slices.Contains(sized, n.Type().Kind()) {
		return nil
	}
	return &cost.SizeEstimate{Max: sizeMax}
}

// EstimateCallCost implements cost.Estimator.
func (sizes) EstimateCallCost(string, string, *cost.AstNode, []cost.AstNode) *cost.CallEstimate {
	return nil
}

// fieldsOf returns the fields of aliases that an expression uses.
func fieldsOf(e ast.Expr, aliases []string) (fields []Field) {
	if alias, path, ok := fieldPath(e); ok {
		if slices.Contains(aliases, alias) {
			fields = append(fields, Field{alias, path})
		}
		return fields
	}
	for _, child := range children(e) {
		fields = append(fields, fieldsOf(child, aliases)...)
	}
	slices.SortFunc(fields, func(a, b Field) int {
		return strings.Compare(a.Alias+"\x00"+strings.Join(a.Path, "\x00"), b.Alias+"\x00"+strings.Join(b.Path, "\x00"))
	})
	return slices.CompactFunc(fields, func(a, b Field) bool { return a.Alias == b.Alias && slices.Equal(a.Path, b.Path) })
}

// fieldPath returns the identifier and the names of an expression such as u.data.plan or u.data["plan"].
func fieldPath(e ast.Expr) (ident string, path []string, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent(), nil, true
	case ast.SelectKind:
		s := e.AsSelect()
		ident, path, ok = fieldPath(s.Operand())
		return ident, append(path, s.FieldName()), ok
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() != operators.Index || call.Args()[1].Kind() != ast.LiteralKind {
			return "", nil, false
		}
		name, isString := call.Args()[1].AsLiteral().Value().(string)
		ident, path, ok = fieldPath(call.Args()[0])
		return ident, append(path, name), ok && isString
	default:
		return "", nil, false
	}
}

// children returns the expressions that an expression is made of.
func children(e ast.Expr) (all []ast.Expr) {
	switch e.Kind() {
	case ast.SelectKind:
		all = append(all, e.AsSelect().Operand())
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			all = append(all, e.AsCall().Target())
		}
		all = append(all, e.AsCall().Args()...)
	case ast.ListKind:
		all = e.AsList().Elements()
	case ast.MapKind:
		for _, entry := range e.AsMap().Entries() {
			all = append(all, entry.AsMapEntry().Key(), entry.AsMapEntry().Value())
		}
	case ast.StructKind:
		for _, field := range e.AsStruct().Fields() {
			all = append(all, field.AsStructField().Value())
		}
	case ast.ComprehensionKind:
		c := e.AsComprehension()
		all = append(all, c.IterRange(), c.AccuInit(), c.LoopCondition(), c.LoopStep(), c.Result())
	default: // identifiers and literals
	}
	return all
}

// ParseData reads a value of JSON as [Event].Data has it: integers that fit as int64, other numbers as float64.
func ParseData(text []byte) (any, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one value")
	}
	return plain(v)
}

// plain turns the numbers of a value into int64 and float64.
func plain(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		if i, err := v.Int64(); err == nil {
			return i, nil
		}
		f, err := v.Float64()
		if err != nil || math.IsInf(f, 0) {
			return nil, fmt.Errorf("the number %s is too large", v)
		}
		return f, nil
	case []any:
		for i := range v {
			if v[i], err = plain(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for k := range v {
			if v[k], err = plain(v[k]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}
