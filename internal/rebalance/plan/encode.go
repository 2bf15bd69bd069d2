package plan

import (
	"bytes"
	"encoding/json"
)

// EncodeLayout writes the JSON form that DecodeLayout reads, one partition to a
// line. It fails for rates that are not numbers, which no valid layout has.
func EncodeLayout(l *Layout, limits Limits) ([]byte, error) {
	type quantum struct {
		Key  Key   `json:"key"`
		Rows int64 `json:"rows"`
	}
	type partition struct {
		ID     string    `json:"id"`
		Start  Key       `json:"start"`
		End    *Key      `json:"end,omitempty"`
		Quanta []quantum `json:"quanta"`
		Pinned bool      `json:"pinned"`
		Writes float64   `json:"writes_per_s"`
		Growth float64   `json:"growth_rows_per_s"`
		Node   string    `json:"node,omitempty"`
	}
	type node struct {
		Name   string  `json:"name"`
		Writes float64 `json:"writes_per_s"`
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	var err error
	put := func(before string, v any) {
		b.WriteString(before)
		if err == nil {
			err = e.Encode(v)
		}
		b.Truncate(max(0, b.Len()-1)) // Encode ends with a line break
	}
	put(`{"bucket":`, l.Bucket)
	put(",\n\"limits\":", struct {
		Max     int64   `json:"max_rows"`
		Min     int64   `json:"min_rows"`
		Target  int64   `json:"target_rows"`
		Writes  float64 `json:"max_writes_per_s,omitempty"`
		Horizon float64 `json:"horizon_s"`
	}{limits.MaxRows, limits.MinRows, limits.TargetRows, limits.MaxWritesPerS, limits.HorizonS})
	if len(l.Nodes) > 0 {
		nodes := make([]node, len(l.Nodes))
		for i, n := range l.Nodes {
			nodes[i] = node{n.Name, n.WritesPerS}
		}
		put(",\n\"nodes\":", nodes)
	}
	separator := ",\n\"partitions\":[\n"
	for i := range l.Partitions {
		p := &l.Partitions[i]
		quanta := make([]quantum, len(p.Quanta))
		for j, q := range p.Quanta {
			quanta[j] = quantum(q)
		}
		put(separator, partition{p.ID, p.Start, p.End, quanta, p.Pinned, p.WritesPerS, p.GrowthRowsPerS, p.Node})
		separator = ",\n"
	}
	b.WriteString("]}\n")
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
