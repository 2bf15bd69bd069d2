package rebalance

import (
	"bytes"
	"encoding/json"
)

// EncodeLayout returns the layout l (a bucket's partitions with their sizes) and the limits as JSON, one partition to a
// line. DecodeLayout reads this form. EncodeLayout fails if a rate is NaN or infinite, which no valid layout has.
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
