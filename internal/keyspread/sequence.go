package keyspread

import (
	"bytes"
	"math"
	"slices"
)

// Predict returns the key that lies about n keys behind key if keys go on like the given names. With reverse it returns
// the key n keys before key in ascending order. It returns nil if it sees no pattern. The names are in listing order,
// ascending or descending. The parameter fixed is the number of first bytes that all names share. At least MinNames
// names are needed, and more than MaxNames are of no use.
//
// Behind the bytes that all names share, each position in a name is a digit. The base of the digit is the size of the
// alphabet seen at that position. So names that count, in whatever base, are predicted exactly:
//
//	names img-0097, img-0098, img-0099, img-0100    key img-0100, n = 50    predicted img-0150
//
// Clients of object stores split listings in the same way (github.com/ClickHouse/ClickHouse/issues/65572).
func Predict(names [][]byte, fixed int, key []byte, n float64, reverse bool) []byte {
	for carry := range carries {
		if s, ok := learn(names, fixed, carry); ok {
			if at := s.ahead(key, n, reverse); at != nil {
				return at
			}
		}
	}
	return nil
}

// A sequence is the pattern of names that end in a counter, such as img-0099 and img-0100. It has the common beginning
// of the names (head), and for each position behind the head the characters that names may have at it.
type sequence struct {
	head   []byte // the bytes with which all names begin
	places []place
	size   float64 // number of values of the counter
	step   float64 // mean difference of the numbers of two neighbouring names
}

// A place is one digit of a counter in names: the set of characters that names have at one position, in ascending
// order. The base of the digit is the number of these characters.
type place struct {
	symbols []byte
	end     bool    // a name may end before this digit
	worth   float64 // value of the digit 1 at this position
}

const (
	// MinNames and MaxNames are the least and the greatest useful number of names from which Predict learns a pattern.
	MinNames, MaxNames = 4, 16
	// carries is the number of attempts of Predict to find a pattern: with 0, 1 or 2 letters before the digits taken
	// for digits, too. Such letters change when the digits behind them overflow, as in a99, b00.
	carries = 3
	// maxPlaces is the greatest number of digits of a counter in names, and maxSize the greatest number of its values.
	// These bounds keep the numbers of the counter exact in a float64.
	maxPlaces = 48
	maxSize   = 1 << 50
)

// learn returns the pattern by which the given sorted names count, such as img-0099, img-0100. The second result is
// false if there is no pattern. The counter has the bytes in which the names differ, the shared digits before them, and
// up to carry shared letters before those. It has none of the first fixed bytes.
func learn(names [][]byte, fixed, carry int) (sequence, bool) {
	// Digits change when the digits behind them overflow. So the counter begins before the bytes that differ.
	if len(names) < MinNames {
		return sequence{}, false
	}
	first, last := names[0], names[len(names)-1]
	h := Common(first, last) // the length that all names share, as they are sorted
	for h > fixed && (isDigit(first[h-1]) || carry > 0 && isLetter(first[h-1])) {
		if h--; !isDigit(first[h]) {
			carry--
		}
	}
	p := sequence{head: first[:h:h], size: 1}
	var all [256]bool
	for _, name := range names {
		for _, c := range name[h:min(h+maxPlaces, len(name))] {
			all[c] = true
		}
	}
	hexadecimal := func(a byte) bool {
		return slices.Contains(all['0':'9'+1], true) && slices.Contains(all[a:a+6], true) &&
			!slices.Contains(all[a+6:a+26], true)
	}
	lower, upper := hexadecimal('a'), hexadecimal('A')
	for at := h; at < h+maxPlaces; at++ {
		var seen [256]bool
		var pl place
		longer := false
		for _, name := range names {
			if len(name) > at {
				longer, seen[name[at]] = true, true
			} else {
				pl.end = true
			}
		}
		if !longer {
			break
		}
		complete(&seen, lower, upper)
		for c, ok := range seen {
			if ok {
				pl.symbols = append(pl.symbols, byte(c))
			}
		}
		if p.size*float64(pl.base()) > maxSize {
			break
		}
		p.size *= float64(pl.base())
		p.places = append(p.places, pl)
	}
	worth := p.size
	for i := range p.places {
		worth /= float64(p.places[i].base())
		p.places[i].worth = worth
	}
	p.step = math.Abs(p.number(last)-p.number(first)) / float64(len(names)-1)
	return p, p.step > 0
}

// base returns the number of values of one digit of a counter in names: the number of characters that the digit may be,
// plus one if names may end before the digit.
func (pl *place) base() int {
	if pl.end {
		return len(pl.symbols) + 1
	}
	return len(pl.symbols)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// complete adds to seen, the set of characters at one position of some names, the characters that other names probably
// have at that position. With a digit it adds all digits, with a letter all letters of the same case. If lower (or
// upper) is true, letters of that case are hexadecimal digits: only a to f (or A to F) are added.
func complete(seen *[256]bool, lower, upper bool) {
	add := func(from, to byte) {
		for c := from; c <= to; c++ {
			seen[c] = true
		}
	}
	digit := slices.Contains(seen['0':'9'+1], true)
	for _, letters := range []struct {
		a   byte
		hex bool
	}{{'a', lower}, {'A', upper}} {
		switch some := slices.Contains(seen[letters.a:letters.a+26], true); {
		case letters.hex && (some || digit):
			add(letters.a, letters.a+5)
			digit = true
		case some:
			add(letters.a, letters.a+25)
		}
	}
	if digit {
		add('0', '9')
	}
}

// number returns the value of the counter at the end of the key. The key must begin with the common beginning of the
// sequence. A greater key has an equal or a greater number.
func (p *sequence) number(key []byte) (n float64) {
	for i := range p.places {
		pl := &p.places[i]
		at := len(p.head) + i
		if at >= len(key) {
			break
		}
		rank, found := slices.BinarySearch(pl.symbols, key[at])
		if pl.end {
			rank++
		}
		n += float64(rank) * pl.worth
		if !found {
			break
		}
	}
	return n
}

// ahead returns the key that lies n keys behind key if keys go on counting as the sequence does. With reverse it
// returns the key n keys before key. It returns nil if the counter would overflow, or if key does not belong to the
// sequence.
func (p *sequence) ahead(key []byte, n float64, reverse bool) []byte {
	if !bytes.HasPrefix(key, p.head) {
		return nil
	}
	if reverse {
		n = -n
	}
	n = math.Round(p.number(key) + n*p.step)
	if n < 0 || n >= p.size {
		return nil
	}
	next := bytes.Clone(p.head)
	for i := range p.places {
		pl := &p.places[i]
		rank := int(n / pl.worth)
		n -= float64(rank) * pl.worth
		if pl.end {
			if rank == 0 {
				break
			}
			rank--
		}
		next = append(next, pl.symbols[rank])
	}
	return next
}
