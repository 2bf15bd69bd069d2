package partmap_test

import (
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// shelf holds the nodes of a map. A small map has none.
type shelf map[store.NodeID][]byte

func (s shelf) read(id store.NodeID) ([]byte, error) {
	if blob, there := s[id]; there {
		return blob, nil
	}
	return nil, store.Errorf(store.NotFound, "no node %s", id)
}

func stamp() partmap.Stamp {
	return partmap.Stamp{
		Token: store.Token(uuid.New()), Now: time.Now(), NewNode: func() store.NodeID { return store.NodeID(uuid.New()) },
	}
}

// A map of 2,000 ranges: a root and a few nodes below it. The map tells the partition of a key, and which ranges an
// interval of keys has.
func Example() {
	entries := []partmap.Entry{{Partition: store.PartitionID{1}}}
	for i := 1; i < 2000; i++ {
		entries = append(entries, partmap.Entry{
			Start: fmt.Appendf(nil, "user%04d", i), Partition: store.PartitionID{0: 1, 14: byte(i >> 8), 15: byte(i)},
		})

	}
	change, err := partmap.New(store.BucketID(uuid.New()), 0, entries, stamp())
	if err != nil {
		log.Fatal(err)
	}
	nodes := shelf{}
	for _, n := range change.Nodes { // first the nodes, then the root that names them
		nodes[n.ID] = n.Blob
	}
	root := change.Next

	r, err := partmap.Find(root, nodes.read, []byte("user0300/photo.jpg"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("[%s, %s) is in %s\n", r.Start, r.End, r.Partition)
	n := 0
	for _, err := range partmap.Ranges(root, nodes.read, []byte("user1000"), []byte("user1200")) {
		if err != nil {
			log.Fatal(err)
		}
		n++
	}
	fmt.Println(n, "ranges of", root.Ranges, "and", len(partmap.Validate(root, nodes.read)), "problems")
	// Output:
	// [user0300, user0301) is in 01000000-0000-0000-0000-00000000012c
	// 200 ranges of 2000 and 0 problems
}

// A range is split: its upper part moves to a fresh partition. Changes are data: the owner of the map writes the nodes
// of each change and swaps its root in.
func ExampleNewEdit() {
	nodes := shelf{}
	first := []partmap.Entry{{Partition: store.PartitionID(uuid.New())}}
	change, err := partmap.New(store.BucketID(uuid.New()), 0, first, stamp())
	if err != nil {
		log.Fatal(err)
	}

	e := partmap.NewEdit(change.Next, stamp(), nodes.read)
	batch, err := e.Begin(partmap.Move{Parts: []partmap.Part{
		{}, // up to "m": stays where it is
		{Start: []byte("m"), To: store.PartitionID(uuid.New())},
	}})
	if err != nil {
		log.Fatal(err)
	}
	if change, err = e.Change(); err != nil {
		log.Fatal(err)
	}
	for phase := partmap.Marking; phase < partmap.Draining; phase++ {
		e = partmap.NewEdit(change.Next, stamp(), nodes.read)
		if err := e.Advance(batch); err != nil {
			log.Fatal(err)
		}
		if change, err = e.Change(); err != nil {
			log.Fatal(err)
		}
	}
	for r, err := range partmap.Ranges(change.Next, nodes.read, nil, nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("epoch %d: [%q, %q) is %s\n", change.Next.Epoch, r.Start, r.End, r.Phase)
	}
	// Output:
	// epoch 5: ["", "m") is settled
	// epoch 5: ["m", "") is draining
}
