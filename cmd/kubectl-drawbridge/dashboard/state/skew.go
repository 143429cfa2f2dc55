package state

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// skew says that the manager and this plugin are not of the same minor version; ok if they
// are known not to be. Builds without a version say nothing.
func skew(plugin, manager string) (g Gap, ok bool) {
	ours, err := version.ParseGeneric(plugin)
	if err != nil {
		return Gap{}, false
	}
	theirs, err := version.ParseGeneric(manager)
	if err != nil || ours.Major() == theirs.Major() && ours.Minor() == theirs.Minor() {
		return Gap{}, false
	}
	than := "older"
	if ours.LessThan(theirs) {
		than = "newer"
	}
	return Gap{Resource: "versions", Why: fmt.Sprintf("the manager (%s) is %s than this plugin (%s): what only one of them knows is left out, or not done. Use the plugin of the manager's version.", manager, than, plugin)}, true
}
