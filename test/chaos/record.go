package chaos

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// Record is what is kept of a run: a line of JSON in the file of a series.
type Record struct {
	Seed uint64 `json:"seed"`
	Mode Mode   `json:"mode"`
	// Drainers are the kinds of drainers that the plan has, Faults how many faults of a
	// kind, and Troubles those that it has.
	Drainers []DrainKind       `json:"drainers"`
	Faults   map[FaultKind]int `json:"faults"`
	Troubles []TroubleKind     `json:"troubles"`
	// Rollout: it has a rollout group.
	Rollout bool `json:"rollout,omitempty"`
	// Singletons: it has a budget that can never allow, and Orders: a maintenance with waves.
	Singletons bool `json:"singletons,omitempty"`
	Orders     bool `json:"orders,omitempty"`
	// Native: its control plane serves lifecycle.k8s.io.
	Native  bool    `json:"native,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Seconds it took.
	Seconds float64 `json:"seconds"`
	// Logs is the folder with logs and timeline of a run that was kept.
	Logs string `json:"logs,omitempty"`
	// Failure says why the run could not be set up, so that nothing was proved.
	Failure string `json:"failure,omitempty"`
}

// NewRecord is the record of a run.
func NewRecord(p *Plan, v Verdict) Record {
	r := Record{Seed: p.Seed, Mode: p.Mode, Faults: map[FaultKind]int{}, Rollout: p.Rollout != nil, Native: p.Serves, Singletons: p.Singletons != nil, Verdict: v}
	r.Orders = slices.ContainsFunc(p.Drains, func(d Drain) bool { return d.Kind == Maintained && d.Order != AllAtOnce })
	for _, kind := range drainKinds {
		if slices.ContainsFunc(p.Drains, func(d Drain) bool { return d.Kind == kind }) {
			r.Drainers = append(r.Drainers, kind)
		}
	}
	for _, f := range p.Faults {
		r.Faults[f.Kind]++
	}
	for _, t := range p.Troubles {
		r.Troubles = append(r.Troubles, t.Kind)
	}
	return r
}

// Series is a file of records, one a line, that grows while runs end. A series that was
// interrupted goes on where it was.
type Series struct {
	file *os.File
	// Records there are.
	Records []Record
}

// OpenSeries reads a file if it is there, and adds to it from then on. Without a path
// nothing is kept. Error: the file cannot be read or written, or is none of a series.
func OpenSeries(path string) (*Series, error) {
	s := &Series{}
	if path == "" {
		return s, nil
	}
	content, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read series: %w", err)
	}
	whole := content[:bytes.LastIndexByte(content, '\n')+1] // A line may have been cut off.
	lines := bufio.NewScanner(bytes.NewReader(whole))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("read series %s: %w", path, err)
		}
		s.Records = append(s.Records, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read series %s: %w", path, err)
	}
	if s.file, err = os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return nil, fmt.Errorf("open series: %w", err)
	}
	if err := s.file.Truncate(int64(len(whole))); err != nil {
		return nil, errors.Join(fmt.Errorf("cut series: %w", err), s.file.Close())
	}
	if _, err := s.file.Seek(0, 2); err != nil {
		return nil, errors.Join(fmt.Errorf("go to the end of the series: %w", err), s.file.Close())
	}
	return s, nil
}

// Has reports whether a seed was run already. One that could not be set up was not.
func (s *Series) Has(seed uint64) bool {
	return slices.ContainsFunc(s.Records, func(r Record) bool { return r.Seed == seed && r.Failure == "" })
}

// Add a record.
func (s *Series) Add(r Record) error {
	s.Records = append(s.Records, r)
	if s.file == nil {
		return nil
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode record: %w", err)
	}
	if _, err := s.file.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write record: %w", err)
	}
	return nil
}

// Close the file.
func (s *Series) Close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
