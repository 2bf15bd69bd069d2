package keyspread

import (
	"bytes"
	"math"
	"slices"
)

// Predict returns the key that is about n keys after key, or before it in reverse, as the
// latest names go on; nil where it can't tell. names are in listing order, ascending or
// descending, and share their first fixed bytes; MinNames of them are needed, and more
// than MaxNames are of no use.
//
// Each place behind what the names have in common is a digit; its base is the size of
// the alphabet seen there. So names that count, in whatever base, are predicted exactly.
// Clients of object stores split listings in the same way
// (github.com/ClickHouse/ClickHouse/issues/65572).
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

// sequence is what was learned from names in a row.
type sequence struct {
	head   []byte // what the keys have in common
	places []place
	size   float64 // so many numbers fit in the places
	step   float64 // mean distance of two neighbouring keys
}

// place is the alphabet of one place of a key, ascending.
type place struct {
	symbols []byte
	end     bool    // a key may end before this place
	worth   float64 // of one symbol more
}

const (
	// MinNames and MaxNames bound the names that Predict learns from.
	MinNames, MaxNames = 4, 16
	// carries: up to so many letters, less one, change where the places behind them
	// overflow.
	carries = 3
	// maxPlaces and maxSize bound a sequence, so that its numbers are exact in a float64.
	maxPlaces = 48
	maxSize   = 1 << 50
)

// learn learns from names; see Predict. What they share behind their fixed bytes belongs
// to the places as far as it is digits, since digits change where those behind them
// overflow; so do up to carry letters. It returns false where it finds no sequence.
func learn(names [][]byte, fixed, carry int) (sequence, bool) {
	if len(names) < MinNames {
		return sequence{}, false
	}
	first, last := names[0], names[len(names)-1]
	h := Common(first, last) // that of all, as they are sorted
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

func (pl *place) base() int {
	if pl.end {
		return len(pl.symbols) + 1
	}
	return len(pl.symbols)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// complete adds the symbols that belong to those seen: all digits to a digit, all
// letters of its case to a letter. With lower or upper such letters are hexadecimal
// digits.
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

// number returns the number of a key that begins with the head. It grows with the key.
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

// ahead predicts the key that is n keys after key, or before it in reverse; nil where
// that would have another head.
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
