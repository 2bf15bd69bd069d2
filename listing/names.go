package listing

import (
	"bytes"
	"math"
	"slices"
)

// progress is how names went on lately, taken for numbers: each place behind what
// they have in common is a digit, of a base that is as large as the alphabet seen
// there. So a name that is so many names ahead can be guessed without a read;
// names that count, in whatever base, are guessed exactly. Listings of object
// stores are parted so by clients, too (github.com/ClickHouse/ClickHouse/issues/65572).
type progress struct {
	head   []byte
	places []place
	all    float64 // how many numbers there are
	apart  float64 // two names that follow each other, on average
}

// place is the alphabet of one place of a name, ascending.
type place struct {
	symbols []byte
	end     bool    // a name may end before this place
	worth   float64 // of one symbol more
}

const (
	// fewNames and manyNames: progress is learned from so many names.
	fewNames, manyNames = 4, 16
	// maxCarry: up to so many letters, less one, count where names get beyond the
	// last one with the same head.
	maxCarry = 3
	// maxPlaces and maxNumber bound a progress; the numbers are exact in a float64.
	maxPlaces = 48
	maxNumber = 1 << 50
)

// learn takes names in order, in either direction, all of which have their first
// fixed bytes in common. Of what else they have in common digits count as places,
// since where digits change those before them will, and so many letters as carry
// says. It returns false where the names don't tell.
func learn(names [][]byte, fixed, carry int) (progress, bool) {
	if len(names) < fewNames {
		return progress{}, false
	}
	first, last := names[0], names[len(names)-1]
	h := commonLength(first, last) // that of all, as they are sorted
	for h > fixed && (isDigit(first[h-1]) || carry > 0 && isLetter(first[h-1])) {
		if h--; !isDigit(first[h]) {
			carry--
		}
	}
	p := progress{head: first[:h:h], all: 1}
	var all [256]bool
	for _, name := range names {
		for _, c := range name[h:min(h+maxPlaces, len(name))] {
			all[c] = true
		}
	}
	hexadecimal := func(a byte) bool {
		return slices.Contains(all['0':'9'+1], true) && slices.Contains(all[a:a+6], true) && !slices.Contains(all[a+6:a+26], true)
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
		if p.all*float64(pl.base()) > maxNumber {
			break
		}
		p.all *= float64(pl.base())
		p.places = append(p.places, pl)
	}
	worth := p.all
	for i := range p.places {
		worth /= float64(p.places[i].base())
		p.places[i].worth = worth
	}
	p.apart = math.Abs(p.number(last)-p.number(first)) / float64(len(names)-1)
	return p, p.apart > 0
}

func (pl *place) base() int {
	if pl.end {
		return len(pl.symbols) + 1
	}
	return len(pl.symbols)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// complete adds the symbols that belong to those seen: where one digit stood others
// will, and likewise letters; lower, upper: letters are hexadecimal digits.
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

// number of a key that begins with the head; it grows with the key.
func (p *progress) number(key []byte) (n float64) {
	for i := range p.places {
		pl := &p.places[i]
		at := len(p.head) + i
		if at >= len(key) {
			break
		}
		rank, found := 0, false
		for rank < len(pl.symbols) && pl.symbols[rank] <= key[at] {
			if pl.symbols[rank] == key[at] {
				found = true
				break
			}
			rank++
		}
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

// ahead guesses the name that is so many names from a key on, or below it in reverse;
// nil if that would have another head.
func (p *progress) ahead(key []byte, names float64, reverse bool) []byte {
	if !bytes.HasPrefix(key, p.head) {
		return nil
	}
	if reverse {
		names = -names
	}
	n := math.Round(p.number(key) + names*p.apart)
	if n < 0 || n >= p.all {
		return nil
	}
	name := bytes.Clone(p.head)
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
		name = append(name, pl.symbols[rank])
	}
	return name
}
