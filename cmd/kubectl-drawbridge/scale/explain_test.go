package scale

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
	"github.com/drawbridge-dev/drawbridge/test/framework/golden"
)

func TestExplain(t *testing.T) {
	cases := map[string]struct {
		world  *world
		wanted int
	}{
		"holds":       {newWorld(zones(1), over(corev1.LabelHostname, 1, corev1.ScheduleAnyway)).node("a1", 2).node("a2", 1).node("b1", 3).node("c1", 3).cordon("a2").request("b1-1"), 6},
		"will-hold":   {newWorld(zones(1)).node("a", 4).node("b", 2), 4},
		"cannot-hold": {newWorld(zones(1)).node("a", 3).node("b", 3).pod("a-0", unready).pod("a-1", unready).pod("a-2", unready), 3},
		"never-held":  {newWorld(zones(1)).node("a", 3).node("b", 3).node("c", 0).node("d", 0), 5},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.world.Wanted = tc.wanted
			plan, err := Decide(tc.world.Input)
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			web := &target{kind: deployment, object: builder.Deployment("shop", "web").Obj(), replicas: int32(len(tc.world.Pods))}
			if err := explain(&out, web, &plan, int32(tc.wanted)); err != nil {
				t.Fatal(err)
			}
			golden.Equal(t, name+".golden.txt", out.String())
		})
	}
}
