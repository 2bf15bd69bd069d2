package plan

import (
	"bytes"
	"encoding/json"
)

// EncodeLayout writes the JSON form that DecodeLayout reads, one partition to a line. It
// fails for rates that are not numbers, which no valid layout has.
func EncodeLayout(l *Layout, limits Limits) ([]byte, error) {
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
	put(",\n\"limits\":", limits)
	separator := ",\n\"partitions\":[\n"
	for i := range l.Partitions {
		p := l.Partitions[i]
		if p.Quanta == nil {
			p.Quanta = []Quantum{} // a list in JSON, not null
		}
		put(separator, p)
		separator = ",\n"
	}
	b.WriteString("]}\n")
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
