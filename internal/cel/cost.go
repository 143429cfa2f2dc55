package cel

import (
	"fmt"
	"math"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"
)

// estimate refuses what may cost more than a static environment allows.
func (e *Env) estimate(checked *celgo.Ast) error {
	if e.limit == 0 {
		return nil
	}
	cost, err := e.env.EstimateCost(checked, &library.CostEstimator{SizeEstimator: e.sizes})
	if err != nil {
		return fmt.Errorf("estimate its cost: %w", err)
	}
	if cost.Max > e.limit {
		return fmt.Errorf("it may cost %s, more than the %d allowed: compare less or nest fewer loops", costText(cost.Max), e.limit)
	}
	return nil
}

func costText(cost uint64) string {
	if cost == math.MaxUint64 {
		return "any amount"
	}
	return fmt.Sprint(cost)
}

// sizes tells the cost estimate how large the variables can be.
type sizes map[string]*apiservercel.DeclType

// EstimateSize follows the path of the node through the declared types. What has
// no path is of unknown size, which the estimate takes for unlimited.
func (s sizes) EstimateSize(node checker.AstNode) *checker.SizeEstimate {
	path := node.Path()
	if len(path) == 0 {
		return nil
	}
	at, ok := s[path[0]]
	if !ok {
		return nil
	}
	for _, step := range path[1:] {
		switch step {
		case "@items", "@values":
			at = at.ElemType
		case "@keys":
			at = at.KeyType
		default:
			field, ok := at.FindField(step)
			if !ok {
				return nil
			}
			at = field.Type
		}
		if at == nil {
			return nil
		}
	}
	return &checker.SizeEstimate{Min: 0, Max: uint64(max(at.MaxElements, 0))}
}

// EstimateCallCost leaves every function to the library.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}
