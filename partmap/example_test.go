package partmap_test

import (
	"fmt"
	"log"
	"time"

	"github.com/google/uuid"

	"github.com/evenkeel/evenkeel/internal/storekit"
	"github.com/evenkeel/evenkeel/partmap"
	"github.com/evenkeel/evenkeel/store"
)

// A range is split: its upper part moves to a fresh partition. Changes are data; a map
// client writes their nodes and swaps their roots (see mapclient).
func Example() {
	stamp := func() partmap.Stamp {
		return partmap.Stamp{
			Token: storekit.NewToken(), Now: time.Now(),
			NewNode: func() store.NodeID { return store.NodeID(uuid.New()) },
		}
	}
	nodes := func(store.NodeID) ([]byte, error) { return nil, store.NotFound } // a small map has none
	first := []partmap.Entry{{Partition: store.PartitionID(uuid.New())}}
	change, err := partmap.New(store.BucketID(uuid.New()), 0, first, stamp())
	if err != nil {
		log.Fatal(err)
	}

	e := partmap.NewEdit(change.Next, stamp(), nodes)
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
		e = partmap.NewEdit(change.Next, stamp(), nodes)
		if err := e.Advance(batch); err != nil {
			log.Fatal(err)
		}
		if change, err = e.Change(); err != nil {
			log.Fatal(err)
		}
	}
	for r, err := range partmap.Ranges(change.Next, nodes, nil, nil) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("epoch %d: [%q, %q) is %s\n", change.Next.Epoch, r.Start, r.End, r.Phase)
	}
	// Output:
	// epoch 5: ["", "m") is settled
	// epoch 5: ["m", "") is draining
}
