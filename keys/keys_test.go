package keys

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// value is an element and what it was made of.
type value struct {
	kind string
	v    any
	desc bool
}

func (v value) element() Element {
	var e Element
	switch x := v.v.(type) {
	case string:
		e = String(x)
	case []byte:
		e = Bytes(x)
	case int64:
		e = Int(x)
	case uint64:
		e = Uint(x)
	case float64:
		e = Float(x)
	case bool:
		e = Bool(x)
	case [16]byte:
		e = UUID(x)
	}
	if v.desc {
		return Desc(e)
	}
	return e
}

// compare compares values of one kind and direction: the oracle.
func (v value) compare(w value) int {
	c := 0
	switch x := v.v.(type) {
	case string:
		c = cmp.Compare(x, w.v.(string))
	case []byte:
		c = bytes.Compare(x, w.v.([]byte))
	case int64:
		c = cmp.Compare(x, w.v.(int64))
	case uint64:
		c = cmp.Compare(x, w.v.(uint64))
	case float64:
		c = cmp.Compare(x, w.v.(float64))
		if y := w.v.(float64); x == 0 && y == 0 {
			c = cmp.Compare(1/x, 1/y) // -0 comes before 0
		}
	case bool:
		c = map[[2]bool]int{{false, true}: -1, {true, false}: 1}[[2]bool{x, w.v.(bool)}]
	case [16]byte:
		y := w.v.([16]byte)
		c = bytes.Compare(x[:], y[:])
	}
	if v.desc {
		return -c
	}
	return c
}

func (v value) read(r *Reader) any {
	switch v.v.(type) {
	case string:
		return r.String()
	case []byte:
		return r.Bytes()
	case int64:
		return r.Int()
	case uint64:
		return r.Uint()
	case float64:
		return r.Float()
	case bool:
		return r.Bool()
	default:
		return r.UUID()
	}
}

// edges are bytes of which short strings meet terminators and escapes.
var edges = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 'a', 0x80, 0xFD, 0xFE, 0xFF}), 0, 4)

var kinds = map[string]*rapid.Generator[any]{
	"string": rapid.Map(edges, func(b []byte) any { return string(b) }),
	"bytes":  rapid.Map(edges, func(b []byte) any { return append([]byte{}, b...) }),
	"int": rapid.OneOf(rapid.Int64().AsAny(), rapid.Map(rapid.IntRange(0, 63), func(n int) any { return int64(1) << n }),
		rapid.Map(rapid.IntRange(0, 63), func(n int) any { return -int64(1)<<n + 1 }), rapid.SampledFrom(
			[]int64{0, -1, 255, 256, -255, -256, -257, math.MinInt64, math.MaxInt64}).AsAny()),
	"uint":  rapid.OneOf(rapid.Uint64().AsAny(), rapid.Map(rapid.IntRange(0, 63), func(n int) any { return uint64(1)<<n - 1 })),
	"float": rapid.OneOf(rapid.Float64().AsAny(), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), math.Inf(1), math.Inf(-1)}).AsAny()),
	"bool":  rapid.Bool().AsAny(),
	"uuid": rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) any {
		return [16]byte(b)
	}),
}

func draw(t *rapid.T, kind string, desc bool) value {
	return value{kind, kinds[kind].Draw(t, kind), desc}
}

// Two tuples of the same kinds compare like their elements, and come back as they were.
func TestTuplesKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := []string{"string", "bytes", "int", "uint", "float", "bool", "uuid"}
		var a, b []value
		for range rapid.IntRange(1, 4).Draw(t, "elements") {
			kind, desc := rapid.SampledFrom(names).Draw(t, "kind"), rapid.Bool().Draw(t, "desc")
			v, w := draw(t, kind, desc), draw(t, kind, desc)
			if rapid.Bool().Draw(t, "equal") {
				w = v
			}
			a, b = append(a, v), append(b, w)
		}
		if rapid.Bool().Draw(t, "shorter") {
			b = b[:len(b)-1]
		}
		want := 0
		for i := range b {
			if want == 0 {
				want = a[i].compare(b[i])
			}
		}
		if want == 0 {
			want = cmp.Compare(len(a), len(b))
		}
		ka, kb := pack(a), pack(b)
		require.Equal(t, want, bytes.Compare(ka, kb), "%v: %x\n%v: %x", a, ka, b, kb)
		require.Equal(t, want == 0 || len(a) > len(b) && bytes.Equal(pack(a[:len(b)]), kb), bytes.HasPrefix(ka, kb),
			"a prefix of exactly what begins with its elements")

		r := Read(ka)
		for _, v := range a {
			require.Equal(t, v.v, v.read(r))
		}
		require.NoError(t, r.End())
		require.Equal(t, ka, pack(a), "reading changes nothing")
	})
}

func pack(values []value) []byte {
	var elements []Element
	for _, v := range values {
		elements = append(elements, v.element())
	}
	return Of(elements...)
}

// What is read without an error is exactly what writing it again gives.
func FuzzReader(f *testing.F) {
	f.Add(Of(String("a\x00b"), Int(-5551212), Float(-42), Bool(true), UUID([16]byte{1})))
	f.Add(Of(Desc(Bytes([]byte{0, 0xFF})), Desc(Int(math.MinInt64)), Desc(Uint(math.MaxUint64))))
	f.Fuzz(func(t *testing.T, key []byte) {
		var elements []Element
		r := Read(key)
		for r.err == nil && len(r.rest) > 0 {
			code, mask, _ := r.code()
			var e Element
			switch {
			case code == codeBytes:
				e = Bytes(r.Bytes())
			case code == codeString:
				e = String(r.String())
			case code == codeFloat:
				e = Float(r.Float())
			case code == codeFalse, code == codeTrue:
				e = Bool(r.Bool())
			case code == codeUUID:
				e = UUID(r.UUID())
			case code < codeZero:
				e = Int(r.Int())
			default:
				e = Uint(r.Uint())
			}
			if mask != 0 {
				e = Desc(e)
			}
			elements = append(elements, e)
		}
		if r.End() == nil {
			require.Equal(t, append([]byte{}, key...), Of(elements...))
		}
	})
}

// The examples of the tuple layer's specification, but for what strings end in; and what
// stored keys rely on besides.
func TestEncodingsArePromises(t *testing.T) {
	for want, key := range map[string][]byte{
		"\x01foo\x00\xffbar\x00\x01":           Of(Bytes([]byte("foo\x00bar"))),
		"\x02F\xc3\x94O\x00\xffbar\x00\x01":    Of(String("FÔO\x00bar")),
		"\x11\xabK\x93":                        Of(Int(-5551212)),
		"\x14":                                 Of(Int(0)),
		"\x21\x3f\xba\xff\xff\xff\xff\xff\xff": Of(Float(-42)),
		"\x26\x27":                             Of(Bool(false), Bool(true)),
		"\x300123456789abcdef":                 Of(UUID([16]byte([]byte("0123456789abcdef")))),
		"\xfd\x9e\xff\xfe\xea\xfe":             Of(Desc(String("a")), Desc(Int(1))),
		"\x00\x00\x00\x00\x00\x00\x01\x02":     BigEndian(258),
		"\x02\xf4ab":                           Salted(1000, []byte("ab")),
	} {
		require.Equal(t, want, string(key))
	}
}

func TestKeysThatAreNoTuples(t *testing.T) {
	for name, key := range map[string]string{
		"empty":                            "",
		"a string without an end":          "\x02ab",
		"a string that ends in an escape":  "\x02ab\x00\xff",
		"a string of FoundationDB":         "\x02ab\x00",
		"an escape that is none":           "\x02ab\x00\x02",
		"a descending one without an end":  "\xfd\x9e\xff",
		"a descending one with another":    "\xfd\x9e\xff\x01",
		"another type":                     "\x01ab\x00\x01",
		"one element too many":             "\x02ab\x00\x01\x14",
		"a code that nothing has":          "\x7f",
		"what FoundationDB has for a null": "\x00",
	} {
		r := Read([]byte(key))
		_ = r.String()
		require.Error(t, r.End(), name)
	}
	for name, key := range map[string]string{
		"cut short":                   "\x16\x01",
		"not in its shortest form":    "\x16\x00\x01",
		"a zero of one byte":          "\x15\x00",
		"-1 in two bytes":             "\x12\xff\xfe",
		"above the greatest int64":    "\x1c\x80\x00\x00\x00\x00\x00\x00\x00",
		"below the least int64":       "\x0c\x7f\xff\xff\xff\xff\xff\xff\xfe",
		"of nine bytes":               "\x1d\x09\x01\x00\x00\x00\x00\x00\x00\x00\x00",
		"nine bytes and negative":     "\x0b\xf6\x01\x00\x00\x00\x00\x00\x00\x00\x00",
		"descending, cut short":       "\xe9\xfe",
		"descending, not the shorest": "\xe9\xff\xfe",
	} {
		r := Read([]byte(key))
		require.Zero(t, r.Int(), name)
		require.Error(t, r.End(), name)
		require.Zero(t, r.Int(), "and everything after it")
	}
	r := Read(Of(Int(-1)))
	require.Zero(t, r.Uint())
	require.Error(t, r.End())
	require.EqualValues(t, math.MinInt64, Read(Of(Int(math.MinInt64))).Int())
}

// Whatever is read of an element of another type, of half an element, or of none, is nothing, and an error.
func TestErrorsOfReaders(t *testing.T) {
	reads := map[string]func(*Reader) any{
		"string": func(r *Reader) any { return r.String() },
		"bytes":  func(r *Reader) any { return string(r.Bytes()) },
		"int":    func(r *Reader) any { return r.Int() },
		"uint":   func(r *Reader) any { return r.Uint() },
		"float":  func(r *Reader) any { return r.Float() },
		"bool":   func(r *Reader) any { return r.Bool() },
		"uuid":   func(r *Reader) any { return r.UUID() },
	}
	keys := map[string][]byte{
		"string": Of(String("text")), "bytes": Of(Bytes([]byte("text"))), "int": Of(Int(-3000)), "uint": Of(Uint(3000)),
		"float": Of(Float(-1)), "bool": Of(Bool(true)), "uuid": Of(UUID([16]byte{1, 2, 3})),
	}
	for name, read := range reads {
		for of, key := range keys {
			if r := Read(key); of == name || of == "uint" && name == "int" {
				require.NotZero(t, read(r))
				require.NoError(t, r.End())
			} else {
				require.Zero(t, read(r), "%s of %s", name, of)
				if of == "int" && name == "uint" {
					require.ErrorContains(t, r.End(), "out of range")
				} else {
					require.ErrorContains(t, r.End(), "the next element, of code 0x")
				}
			}
		}
		for n := range len(keys[name]) {
			for _, r := range []*Reader{Read(keys[name][:n]), Read(Of(Desc(Element{keys[name]}))[:n])} {
				require.Zero(t, read(r))
				require.ErrorContains(t, r.End(), map[bool]string{true: "no more elements", false: "ends within"}[n == 0])
			}
		}
	}
}

func TestTimesAreWholeMicroseconds(t *testing.T) {
	at := time.Date(1969, 7, 20, 20, 17, 40, 123456789, time.UTC)
	r := Read(Of(Desc(Time(at))))
	require.Equal(t, at.Truncate(time.Microsecond), r.Time().UTC())
	require.NoError(t, r.End())
}

func TestNumbersWithoutATypeKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		require.Equal(t, cmp.Compare(a, b), bytes.Compare(BigEndian(a), BigEndian(b)))
		require.Equal(t, a, binary.BigEndian.Uint64(BigEndian(a)))
	})
}

func TestSaltsSpreadKeys(t *testing.T) {
	const n = 16
	count := map[byte]int{}
	for i := range int64(16_000) {
		key := Of(String("host"), Int(i))
		salted := Salted(n, key)
		back, err := Unsalted(salted)
		require.NoError(t, err)
		require.Equal(t, key, back)
		require.Zero(t, salted[0])
		count[salted[1]]++
	}
	require.Len(t, count, n)
	for salt, keys := range count { // 1,000 each; a deviation of 10 sigmas
		require.InDelta(t, 1000, keys, 310, "salt %d", salt)
	}
	require.Equal(t, [][]byte{{0, 0}, {0, 1}, {0, 2}}, Salts(3))
	require.Len(t, Salts(maxSalts), maxSalts)
	for _, n := range []int{-1, 0, 65_537} {
		require.Panics(t, func() { Salted(n, nil) })
		require.Panics(t, func() { Salts(n) })
	}
	_, err := Unsalted([]byte{1})
	require.ErrorContains(t, err, "has 1")
}

func TestSnowflakesGrowWhateverTheClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		worker := rapid.IntRange(0, maxWorker).Draw(t, "worker")
		s, err := NewSnowflakes(worker)
		require.NoError(t, err)
		now, newest := time.UnixMilli(epoch+5_000_000), int64(-1)
		for range 10 {
			step := rapid.OneOf(rapid.Just(time.Duration(0)), rapid.Map(rapid.IntRange(-4000, 4000),
				func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond })).Draw(t, "step")
			now = now.Add(step)
			for range rapid.IntRange(1, 10_000).Draw(t, "ids") {
				id, wait, err := s.next(now)
				early := SnowflakeTime(newest).Sub(now)
				switch {
				case err != nil:
					if early < behind {
						t.Fatalf("refused though only %v ahead: %v", early, err)
					}
				case wait > 0:
					if early < ahead {
						t.Fatalf("waits for %v though only %v ahead", wait, early)
					}
				case id <= newest, int(id>>sequenceBits&maxWorker) != worker, SnowflakeTime(id).Before(now),
					SnowflakeTime(id).Sub(now) > ahead:
					t.Fatalf("%x after %x at %v", id, newest, now)
				default:
					newest = id
				}
			}
		}
	})
}

func TestSnowflakesGoOnAboveWhatIsStored(t *testing.T) {
	now := time.Now().Truncate(time.Millisecond)
	for name, stored := range map[string]int64{
		"its own":           FirstSnowflake(now) | 7<<sequenceBits | 4094,
		"a lower worker's":  FirstSnowflake(now) | 6<<sequenceBits | 3,
		"a higher worker's": FirstSnowflake(now) | 8<<sequenceBits | 3,
	} {
		s, err := NewSnowflakes(7)
		require.NoError(t, err)
		s.Above(stored)
		s.Above(5) // nothing new
		for range 3 {
			id, wait, err := s.next(now)
			require.NoError(t, err)
			require.Zero(t, wait)
			require.Greater(t, id, stored, name)
		}
	}
	s, err := NewSnowflakes(0)
	require.NoError(t, err)
	s.Above(FirstSnowflake(now.Add(time.Hour)))
	_, _, err = s.next(now)
	require.ErrorContains(t, err, "ahead of the clock, which was set back")
	_, err = s.Next()
	require.Error(t, err)
	_, _, err = s.next(time.UnixMilli(epoch - 1))
	require.ErrorContains(t, err, "2010 to 2080")
	_, err = NewSnowflakes(maxWorker + 1)
	require.ErrorContains(t, err, "worker 1024")
}

func TestSnowflakesWaitForTheClock(t *testing.T) {
	s, err := NewSnowflakes(0)
	require.NoError(t, err)
	stored := FirstSnowflake(time.Now().Add(ahead + 100*time.Millisecond))
	s.Above(stored)
	id, err := s.Next()
	require.NoError(t, err)
	require.Greater(t, id, stored)
}

func TestSnowflakesAreOnce(t *testing.T) {
	s, err := NewSnowflakes(1)
	require.NoError(t, err)
	ids := make(chan []int64)
	for range 4 {
		go func() {
			var mine []int64
			for range 20_000 {
				id, err := s.Next()
				if err != nil {
					break
				}
				mine = append(mine, id)
			}
			ids <- mine
		}()
	}
	seen := map[int64]bool{}
	for range 4 {
		for _, id := range <-ids {
			require.False(t, seen[id])
			seen[id] = true
		}
	}
	require.Len(t, seen, 80_000)
}

func TestTimesOfSnowflakes(t *testing.T) {
	at := time.Date(2026, 11, 23, 12, 0, 0, 5e6, time.UTC)
	require.Equal(t, at, SnowflakeTime(FirstSnowflake(at)).UTC())
	// A published id of Twitter's: the one that announced them.
	require.Equal(t, "2020-05-07", SnowflakeTime(1258460170497101824).UTC().Format(time.DateOnly))
	require.Zero(t, FirstSnowflake(time.Unix(0, 0)))
	require.EqualValues(t, lastMilli<<22, FirstSnowflake(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
}
