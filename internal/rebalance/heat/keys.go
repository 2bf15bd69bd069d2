package heat

// keys is a table of the keys at which intervals of keys start in a history of buckets. The same key is needed in most
// columns of the history. It is stored once, under a number by which the columns refer to it, with a count of its uses.
type keys struct {
	texts []string
	refs  []int32
	free  []uint32
	index map[string]uint32
	bytes int64
}

// keyBytes is the memory, in bytes, that the table of keys takes for each key besides the bytes of the key itself:
// three slice elements and a map entry.
const keyBytes = 64

func newKeys() keys { return keys{index: map[string]uint32{}} }

// take returns the number of a key in the table of keys, and counts one more use of the key. The parameter text is the
// key. If the key is new, it is added to the table.
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

// give counts one use less for each of the keys with the given numbers. Keys without a use are removed from the table.
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
