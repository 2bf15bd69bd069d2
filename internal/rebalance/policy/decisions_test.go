package policy

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evenkeel/evenkeel/counter"
)

var update = flag.Bool("update", false, "write testdata/decisions.txt")

// judgedAt is the time of the inputs in testdata/decisions.txt, at 05:06:07.
var judgedAt = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// The decisions about many inputs, most of them at the limits between two decisions, are those of
// testdata/decisions.txt.
func TestDecisions(t *testing.T) {
	const path = "testdata/decisions.txt"
	stored, err := os.ReadFile(path)
	require.NoError(t, err)
	var made strings.Builder
	for line := range strings.Lines(string(stored)) {
		if strings.HasPrefix(line, "\t") {
			continue
		}
		made.WriteString(line)
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			made.WriteString(decidedOf(inputOf(line)))
		}
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(made.String()), 0o644))
		return
	}
	want, got := strings.Split(string(stored), "\n"), strings.Split(made.String(), "\n")
	input := ""
	for i := range got {
		if !strings.HasPrefix(got[i], "\t") {
			input = got[i]
		}
		require.Equal(t, want[min(i, len(want)-1)], got[i], "line %d, of %s", i+1, input)
	}
	require.Len(t, want, len(got))
}

// decidedOf is what is decided about an input, a line for each decision: what is not zero, with its price.
func decidedOf(in Input) string {
	var out strings.Builder
	for _, d := range Decide(in) {
		fmt.Fprintf(&out, "\t%s %d-%d: %s", d.Kind, d.From, d.To, d.Why)
		v := reflect.ValueOf(d)
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			switch f := v.Field(i); x := f.Interface().(type) {
			case time.Time:
				if !x.IsZero() {
					fmt.Fprintf(&out, ", until %v", x.Sub(judgedAt))
				}
			case [][]byte:
				if len(x) > 0 {
					fmt.Fprintf(&out, ", cuts %q", x)
				}
			case []Stream:
				for _, s := range x {
					fmt.Fprintf(&out, ", stream %q-%q %d %.3f", s.Start, s.End, s.Dir, s.Share)
				}
			case *float64:
				if x != nil {
					fmt.Fprintf(&out, ", gap %.3f", *x)
				}
			case float64:
				if x != 0 {
					fmt.Fprintf(&out, ", rate %.5g", x)
				}
			case bool, int, int64:
				if !f.IsZero() && name != "From" && name != "To" {
					fmt.Fprintf(&out, ", %s %v", strings.ToLower(name), x)
				}
			}
		}
		if p, ok := in.Price(&d); ok {
			fmt.Fprintf(&out, ", costs %.1f instead of %.1f, least %.1f, parts %v", p.After.Cost, p.Today.Cost, p.Least,
				p.Parts)
		}
		if g := Growth(&in.Ranges[d.From].Stats, in.Now); g != 0 {
			fmt.Fprintf(&out, ", grows %.4g", g)
		}
		if d.Stays() {
			out.WriteString(", stays")
		}
		fmt.Fprintln(&out, strings.TrimRight("; "+d.Text, "; "))
	}
	return out.String()
}

// inputOf reads an input: its ranges, each as its number of rows and other fields of Range and of its Stats, and before
// them fields of Input and of Policy. Times are seconds before now, durations seconds.
func inputOf(line string) Input {
	in := Input{Now: judgedAt, Policy: Default(1000)}
	parts := strings.Split(" "+line, " | ")
	for k, part := range parts {
		words := strings.Fields(part)
		if k == 0 {
			for _, w := range words {
				if budget, ok := strings.CutPrefix(w, "Budget."); ok {
					setField(budget, &in.Policy.Budget)
				} else {
					setField(w, &in, &in.Policy)
				}
			}
			continue
		}
		rows, _ := strconv.ParseInt(words[0], 10, 64)
		r := Range{
			Created: judgedAt.Add(-24 * time.Hour), Small: judgedAt.Add(-24 * time.Hour),
			Stats: counter.Stats{
				Known: true, Rows: rows, Bytes: 100 * rows, Recounted: judgedAt.Add(-time.Second), RecountedRows: rows,
				Top: []byte("x"), Spread: 1,
			},
		}
		if k > 1 {
			r.Start = []byte{'0' + byte(k)}
		}
		if k+1 < len(parts) {
			r.End = []byte{'1' + byte(k)}
		}
		for _, w := range words[1:] {
			setField(w, &r, &r.Stats)
		}
		in.Ranges = append(in.Ranges, r)
	}
	return in
}

// setField sets a field of one of some structs, as in PutsPerS=5.
func setField(word string, structs ...any) {
	name, text, _ := strings.Cut(word, "=")
	for _, s := range structs {
		f := reflect.ValueOf(s).Elem().FieldByName(name)
		if !f.IsValid() {
			continue
		}
		n, _ := strconv.ParseFloat(text, 64)
		duration := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
		switch p := f.Addr().Interface().(type) {
		case *time.Time:
			*p = judgedAt.Add(-duration(n))
			if text == "never" {
				*p = time.Time{}
			}
		case *time.Duration:
			*p = duration(n)
		case *[]Hours: // 22-5
			from, to, _ := strings.Cut(text, "-")
			a, _ := strconv.ParseFloat(from, 64)
			b, _ := strconv.ParseFloat(to, 64)
			*p = append(*p, Hours{duration(3600 * a), duration(3600 * b)})
		case *[]byte:
			*p = []byte(text)
		case *string:
			*p = text
		case *bool:
			*p = text == "true"
		case *[]counter.Asked: // abc*24@10: 24 reads by turns for keys that begin with a, b and c, ten seconds apart
			keys, times, _ := strings.Cut(text, "*")
			var reads, apart int
			_, _ = fmt.Sscanf(times, "%d@%d", &reads, &apart)
			for i := range reads {
				at := judgedAt.Add(time.Duration(i-reads) * time.Duration(apart) * time.Second)
				*p = append(*p, counter.Asked{Key: []byte{keys[i%len(keys)]}, At: at.UnixMilli()})
			}
		case *[]counter.Quantum: // 100,50@7-9*2: 100 rows at no time, then twice 50 rows from then to then
			start := string(structs[0].(*Range).Start)
			for q := range strings.SplitSeq(text, ",") {
				x := counter.Quantum{}
				q, times, _ := strings.Cut(q, "*")
				_, _ = fmt.Sscanf(q, "%d@%d-%d", &x.Rows, &x.Oldest, &x.Newest)
				for n, _ := strconv.Atoi(cmp.Or(times, "1")); n > 0; n-- {
					if len(*p) > 0 {
						x.Key = fmt.Appendf(nil, "%s%03d", start, len(*p))
					}
					*p = append(*p, x)
				}
			}
		case **Newest:
			*p = newestOf(string(structs[0].(*Range).Start), text)
		default:
			f.Set(reflect.ValueOf(n).Convert(f.Type()))
		}
		return
	}
	panic("no field for " + word)
}

// newestOf makes the newest keys of a range, e.g. n300@20: 300 numbers (n), of which 20 per second were written. Others
// than n are numbers with gaps (g), keys in no order (h), and numbers that descend (d).
func newestOf(start, text string) *Newest {
	var kind rune
	var keys, perS int
	_, _ = fmt.Sscanf(text, "%c%d@%d", &kind, &keys, &perS)
	n := &Newest{}
	for i := range keys {
		key, later := fmt.Sprintf("%08d", 10_000+i), keys-i
		switch kind {
		case 'd':
			later = i + 1
		case 'g':
			key = fmt.Sprintf("%012d", 10_000*(i/8)+i%8)
		case 'h':
			key = fmt.Sprintf("%04d%016x", i, uint64(i+1)*0x9e3779b97f4a7c15)
		}
		n.Keys = append(n.Keys, []byte(start+key))
		age := time.Duration(later) * time.Second / time.Duration(max(perS, 1))
		n.Written = append(n.Written, judgedAt.Add(-age).UnixMicro())
	}
	return n
}
