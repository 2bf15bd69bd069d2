package heat

// keys is a table of the starts of spans, which most columns share.
type keys struct {
	texts []string
	refs  []int32
	free  []uint32
	index map[string]uint32
	bytes int64
}

// keyBytes is the memory of a key apart from its text: three entries, and one of a map.
const keyBytes = 64

func newKeys() keys { return keys{index: map[string]uint32{}} }

// take returns the number of a text, which has one user more.
func (k *keys) take(text string) uint32 {
	id, ok := k.index[text]
	if !ok {
		if n := len(k.free); n > 0 {
			id, k.free = k.free[n-1], k.free[:n-1]
			k.texts[id] = text
		} else {
			id = uint32(len(k.texts))
			k.texts, k.refs = append(k.texts, text), append(k.refs, 0)
		}
		k.index[text] = id
		k.bytes += keyBytes + int64(len(text))
	}
	k.refs[id]++
	return id
}

// give takes back what was taken.
func (k *keys) give(ids []uint32) {
	for _, id := range ids {
		if k.refs[id]--; k.refs[id] > 0 {
			continue
		}
		k.bytes -= keyBytes + int64(len(k.texts[id]))
		delete(k.index, k.texts[id])
		k.texts[id] = ""
		k.free = append(k.free, id)
	}
}
