package driplang

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
	"cel.dev/cel-go/interpreter"
)

// adapter makes values of CEL. Its maps are in the order of their keys, so that a loop over one always does the same.
type adapter struct{ *types.Registry }

// NativeToValue implements types.Adapter.
func (a adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case map[string]any:
		return ordered{types.NewStringInterfaceMap(a, v)}
	case map[string]string:
		return ordered{types.NewStringStringMap(a, v)}
	case map[ref.Val]ref.Val:
		return ordered{types.NewRefValMap(a, v)}
	case []any:
		return types.NewDynamicList(a, v)
	}
	return a.Registry.NativeToValue(v)
}

// ordered is a map in the order of its keys.
type ordered struct{ traits.Mapper }

// Iterator implements traits.Iterable.
func (m ordered) Iterator() traits.Iterator {
	var keys []ref.Val
	for it := m.Mapper.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, it.Next())
	}
	slices.SortFunc(keys, func(a, b ref.Val) int {
		if c, ok := a.(traits.Comparer); ok {
			if order, ok := c.Compare(b).(types.Int); ok {
				return int(order)
			}
		}
		return strings.Compare(a.Type().TypeName(), b.Type().TypeName())
	})
	return types.NewRefValList(m.Mapper.(types.Adapter), keys).Iterator()
}

// orderMaps makes the maps that a condition itself writes ordered, too.
func orderMaps(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	if c, ok := i.(interpreter.InterpretableConstructor); ok && c.Type() == types.MapType {
		return orderedLiteral{i}, nil
	}
	return i, nil
}

type orderedLiteral struct{ interpreter.InterpretableV2 }

// Exec implements interpreter.InterpretableV2.
func (l orderedLiteral) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	v := l.InterpretableV2.Exec(frame)
	if m, ok := v.(traits.Mapper); ok {
		return ordered{m}
	}
	return v
}
