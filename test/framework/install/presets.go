package install

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

// PresetPolicies reads the EvacuationPolicies of all presets of the chart in a folder, by
// their names and as their files have them: without what values and the release add.
func PresetPolicies(chart string) (map[string]*v1alpha1.EvacuationPolicy, error) {
	files, err := filepath.Glob(filepath.Join(chart, "presets", "*", "policy*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("find the presets of %s: %w", chart, err)
	}
	policies := map[string]*v1alpha1.EvacuationPolicy{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a policy: %w", err)
		}
		p := &v1alpha1.EvacuationPolicy{}
		if err := yaml.UnmarshalStrict(data, p); err != nil {
			return nil, fmt.Errorf("decode %s: %w", file, err)
		}
		if policies[p.Name] != nil {
			return nil, fmt.Errorf("%s: another file has the policy %s, too", file, p.Name)
		}
		policies[p.Name] = p
	}
	return policies, nil
}

// PresetPolicy reads one of [PresetPolicies].
func PresetPolicy(chart, name string) (*v1alpha1.EvacuationPolicy, error) {
	policies, err := PresetPolicies(chart)
	if err != nil {
		return nil, err
	}
	if policies[name] == nil {
		return nil, fmt.Errorf("no preset of %s has a policy %s", chart, name)
	}
	return policies[name], nil
}
